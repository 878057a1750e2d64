"""The site that the tests of `langchain-feedback index` work on."""

import sys

import pytest

from tests.unit_tests.cli.index_kit import MODULE, Site


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop(MODULE, None)
    yield Site(tmp_path)
    sys.modules.pop(MODULE, None)
