"""Tell readers that know no registry which version of an index is active.

They are hooks of an `IndexRegistry`, called after its commit: an alias in Qdrant, a view in
PostgreSQL. Either moves in one step, so a reader sees the old version or the new one. Neither
moves the embedder of the questions: readers of an alias must be told of another embedder by
other means, and `SwappableRetriever` needs neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import ProgrammingError

from langchain_feedback.errors import MissingExtraError
from langchain_feedback.index.versions import VersionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_feedback.index.versions import IndexVersion

__all__ = ["AliasError", "PostgresView", "QdrantAlias"]

_OTHER_COLUMNS = "42P16"
_NO_VIEW = "42809"


class AliasError(VersionError):
    """An alias cannot be moved; it is where it was."""


class QdrantAlias:
    """Points an alias of Qdrant at the collection of the active version, in one request.

    Args:
        client: A `QdrantClient`.
        alias: The name that readers use. No collection may have it.
        collection_of: Returns the collection of a version; None: `locator["collection"]`.

    Example:
        >>> from langchain_feedback.index.versions import IndexRegistry  # doctest: +SKIP
        >>> registry = IndexRegistry(store, hooks=[QdrantAlias(client, "kb")])  # doctest: +SKIP
    """

    def __init__(
        self,
        client: Any,
        alias: str,
        collection_of: "Callable[[IndexVersion], str] | None" = None,
    ) -> None:
        self.client, self.alias = client, _named(alias)
        self._collection_of = collection_of or _located("collection")

    def __call__(self, version: "IndexVersion") -> None:
        """Point the alias at a version.

        Raises:
            AliasError: If its collection is missing, or one has the alias's name.
        """
        try:
            models = import_module("qdrant_client").models
        except ImportError as error:
            msg = "QdrantAlias needs Qdrant's client. Run: pip install qdrant-client"
            raise MissingExtraError(msg) from error
        collection = self._collection_of(version)
        if self.current() == collection:
            return
        self._check(collection)
        new = models.CreateAlias(collection_name=collection, alias_name=self.alias)
        steps: list[Any] = [models.CreateAliasOperation(create_alias=new)]
        if self.current() is not None:
            old = models.DeleteAlias(alias_name=self.alias)
            steps.insert(0, models.DeleteAliasOperation(delete_alias=old))
        self.client.update_collection_aliases(steps)

    def current(self) -> str | None:
        """Return the collection that the alias points at, or None."""
        known = self.client.get_aliases().aliases
        found = (one.collection_name for one in known if one.alias_name == self.alias)
        return next(found, None)

    def _check(self, collection: str) -> None:
        names = {one.name for one in self.client.get_collections().collections}
        if collection not in names:
            msg = (
                f"Qdrant has no collection {collection!r}, so {self.alias!r} was not moved to it."
            )
            raise AliasError(msg)
        if self.alias in names:
            msg = f"{self.alias!r} is a collection of Qdrant's, and no alias can have its name."
            raise AliasError(msg)


class PostgresView:
    """Points a view at the table of the active version, in one statement.

    `PGVectorStore` reads and writes through such a view. Tables whose columns differ, such as
    vectors of another size, are refused: whoever reads the view embeds for the old size.

    Args:
        engine: A synchronous SQLAlchemy engine, or a URL: `postgresql+psycopg://...`.
        view: The name that readers use.
        table_of: Returns the table of a version; None: `locator["table"]`.
        schema: Where view and tables are.

    Example:
        >>> registry = IndexRegistry(store, hooks=[PostgresView(url, "kb")])  # doctest: +SKIP
    """

    def __init__(
        self,
        engine: Engine | str,
        view: str,
        table_of: "Callable[[IndexVersion], str] | None" = None,
        *,
        schema: str = "public",
    ) -> None:
        self.engine = create_engine(engine) if isinstance(engine, str) else engine
        self.view, self.schema = _named(view), schema
        self._table_of = table_of or _located("table")

    def __call__(self, version: "IndexVersion") -> None:
        """Point the view at a version.

        Raises:
            AliasError: If its table is missing or has other columns, or a table has the view's
                name.
        """
        table = self._table_of(version)
        view, source = self._quoted(self.view), self._quoted(table)
        try:
            with self.engine.begin() as connection:
                # Two hooks at a time would fail in PostgreSQL's own catalogue.
                self._alone(connection)
                made = f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM {source}"  # noqa: S608
                connection.execute(text(made))
        except ProgrammingError as error:
            state = getattr(error.orig, "sqlstate", None)
            raise AliasError(self._refused(table, state, error)) from error

    def current(self) -> str | None:
        """Return the table that the view reads, or None."""
        found = text(
            "SELECT table_name FROM information_schema.view_table_usage"
            " WHERE view_schema = :schema AND view_name = :view"
        )
        with self.engine.connect() as connection:
            asked = {"schema": self.schema, "view": self.view}
            table: str | None = connection.execute(found, asked).scalar()
        return table

    def _alone(self, connection: Connection) -> None:
        locked = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
        connection.execute(locked, {"name": f"langchain-feedback view {self.schema}.{self.view}"})

    def _quoted(self, name: str) -> str:
        # Not by the dialect: that escapes percent signs, as `text` does once more.
        quoted = ".".join('"' + of.replace('"', '""') + '"' for of in (self.schema, name))
        # A colon would be read as the name of a value.
        return quoted.replace(":", r"\:")

    def _refused(self, table: str, state: str | None, error: ProgrammingError) -> str:
        if state == _OTHER_COLUMNS:
            return (
                f"The table {table!r} has other columns than the view {self.view!r}, which stays "
                "where it was: make a view of another name, and tell its readers the embedder."
            )
        if state == _NO_VIEW:
            return f"{self.view!r} is a table, and no view can have its name."
        return f"The view {self.view!r} was not moved to the table {table!r}: {error.orig}"


def _named(name: str) -> str:
    if not name.strip():
        msg = "An alias needs a name."
        raise ValueError(msg)
    return name


def _located(key: str) -> "Callable[[IndexVersion], str]":
    def read(version: "IndexVersion") -> str:
        found = version.locator.get(key)
        if not isinstance(found, str) or not found:
            msg = f"The locator of version {version.version!r} has no {key!r}: {version.locator}."
            raise AliasError(msg)
        return found

    return read
