"""Stores of both kinds, each on a real database of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from langchain_feedback.store.feedback_store import FeedbackStore


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'feedback.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(url: str) -> Iterator[FeedbackStore]:
    """A store without embeddings."""
    with FeedbackStore(url) as opened:
        yield opened
