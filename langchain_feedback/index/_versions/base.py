"""What every part of the registry of versions stands on: reading, and who may do what."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_feedback.index._versions import rows
from langchain_feedback.index._versions.rows import Activation, IndexVersion
from langchain_feedback.index.errors import VersionRefusedError
from langchain_feedback.store.parts.base import twin
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Hook", "OpenVersion", "RegistryBase", "check_status"]

OpenVersion: TypeAlias = Callable[[IndexVersion], Any]
"""Opens a version by its locator: a Runnable from a string to documents."""

Hook: TypeAlias = Callable[[IndexVersion], object]
"""Tells other readers which version is active, such as `QdrantAlias`. Twice is harmless."""

_WHY = {
    "building": "Check it first: `ready`.",
    "active": "Activate another one first.",
}


class RegistryBase:
    """The part of the registry that reads."""

    def __init__(self, store: "FeedbackStore", *, hooks: Sequence[Hook] = ()) -> None:
        self.store, self.hooks = store, tuple(hooks)

    def active(self) -> IndexVersion | None:
        """Return the version that is searched now, or None.

        Raises:
            StoreError: If the database cannot be read; so do all the others.
        """
        with reading(self.store) as connection:
            return rows.read_active(connection, self._of)

    def get(self, version: str) -> IndexVersion:
        """Return a version.

        Raises:
            UnknownVersionError: If there is none of that name.
        """
        with reading(self.store) as connection:
            return rows.read_row(connection, self._of, version)

    def versions(self) -> list[IndexVersion]:
        """Return every version, oldest first."""
        with reading(self.store) as connection:
            return rows.read_rows(connection, self._of)

    def history(self) -> list[Activation]:
        """Return what was made active when, oldest first."""
        with reading(self.store) as connection:
            return rows.read_activations(connection, self._of)

    @property
    def _of(self) -> str:
        return self.store.namespace

    aactive = twin(active)
    aget = twin(get)
    aversions = twin(versions)
    ahistory = twin(history)


def check_status(version: IndexVersion, wanted: Sequence[str], done: str) -> None:
    """Make sure that a version is in a state for something to be done with it.

    Raises:
        VersionRefusedError: If it is not.
    """
    if version.status not in wanted:
        msg = (
            f"Version {version.version!r} is {version.status}: it cannot be {done}. "
            f"{_WHY.get(version.status, 'Build a new one.')}"
        )
        raise VersionRefusedError(msg)
