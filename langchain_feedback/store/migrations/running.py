"""Bring a database up to this release, one process at a time."""

from collections.abc import Callable, Sequence

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Connection, Integer, MetaData, Table, func, insert, select

from langchain_feedback.errors import StoreVersionError
from langchain_feedback.store.migrations import m0001_first_tables

__all__ = ["MIGRATIONS", "Migration", "migrate", "version_of"]

Migration = Callable[[Operations], None]

MIGRATIONS: tuple[Migration, ...] = (m0001_first_tables.upgrade,)
"""In order; a database is at the version that counts how many of them ran."""

_versions = Table("lcf_version", MetaData(), Column("version", Integer, primary_key=True))


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
