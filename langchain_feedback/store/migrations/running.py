"""Bring a database up to this release, one process at a time."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import Column, Connection, Integer, MetaData, Table, func, insert, select

from langchain_feedback.errors import StoreVersionError
from langchain_feedback.store.migrations import (
    m0001_first_tables,
    m0002_loop_tables,
    m0003_learning_tables,
    m0004_care_tables,
)

if TYPE_CHECKING:
    from alembic.operations import Operations

__all__ = ["MIGRATIONS", "Migration", "load_alembic", "migrate", "version_of"]

Migration: TypeAlias = "Callable[[Operations], None]"

MIGRATIONS: tuple[Migration, ...] = (
    m0001_first_tables.upgrade,
    m0002_loop_tables.upgrade,
    m0003_learning_tables.upgrade,
    m0004_care_tables.upgrade,
)
"""In order; a database is at the version that counts how many of them ran."""

_versions = Table("lcf_version", MetaData(), Column("version", Integer, primary_key=True))


def load_alembic() -> None:
    """Import Alembic, a fifth of what importing a retriever would cost, before it is needed."""
    import alembic.migration  # noqa: PLC0415
    import alembic.operations  # noqa: F401, PLC0415


def version_of(connection: Connection) -> int:
    """Return how many migrations a database has seen; 0 of an empty one."""
    if not connection.dialect.has_table(connection, _versions.name):
        return 0
    return connection.execute(select(func.max(_versions.c.version))).scalar() or 0


def migrate(connection: Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Run what a database lacks, in the transaction of the connection, which must be alone.

    Raises:
        StoreVersionError: If a newer release made the database.
    """
    from alembic.migration import MigrationContext  # noqa: PLC0415  see load_alembic
    from alembic.operations import Operations  # noqa: PLC0415

    version = version_of(connection)
    if version > len(migrations):
        msg = (
            f"This database is at version {version}, and this release knows {len(migrations)}. "
            "Upgrade langchain-feedback, or use another database."
        )
        raise StoreVersionError(msg)
    operations = Operations(MigrationContext.configure(connection))
    _versions.create(connection, checkfirst=True)
    for number, upgrade in enumerate(migrations[version:], start=version + 1):
        upgrade(operations)
        connection.execute(insert(_versions), {"version": number})
