"""Versions that nobody needs any more."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from langchain_feedback.index._versions import rows
from langchain_feedback.index._versions.base import RegistryBase, check_status
from langchain_feedback.index._versions.rows import IndexVersion
from langchain_feedback.index.errors import VersionRefusedError
from langchain_feedback.store.parts.base import twin
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Clearing"]

_KEPT = timedelta(hours=24)


class Clearing(RegistryBase):
    """The part of the registry that forgets versions."""

    def retire(self, version: str) -> IndexVersion:
        """Give up a version that never became active.

        Raises:
            VersionRefusedError: If it is active: activate another one instead.
            UnknownVersionError: If there is none of that name.
        """
        with writing(self.store) as (connection, _):
            known = rows.read_row(connection, self._of, version)
            check_status(known, ("building", "ready", "retired"), "retired")
            if known.status != "retired":
                at = clock(self.store, connection)
                rows.change_row(connection, self._of, version, status="retired", retired_at=at)
        return self.get(version)

    def droppable(self) -> list[IndexVersion]:
        """Return the retired versions that nobody needs any more, oldest first.

        They are retired for 24 hours, and a rollback does not go back to them; the one that
        was active last is kept in any case.
        """
        with reading(self.store) as connection:
            return self._droppable(connection)

    def drop(self, version: str, remove: Callable[[IndexVersion], object]) -> IndexVersion:
        """Forget a version that is `droppable`, and then remove its index.

        Args:
            version: Which.
            remove: Removes its collection, table or folder. If it fails, the version is
                forgotten all the same, so that nobody activates half an index.

        Raises:
            VersionRefusedError: If it is still needed.
            UnknownVersionError: If there is none of that name.
        """
        with writing(self.store) as (connection, _):
            known = rows.read_row(connection, self._of, version)
            if known.key not in {one.key for one in self._droppable(connection)}:
                msg = (
                    f"Version {version!r} is kept: it is {known.status}. Retired ones are kept "
                    "for 24 hours, and the one to go back to for longer."
                )
                raise VersionRefusedError(msg)
            rows.delete_row(connection, self._of, version)
        remove(known)
        return known

    def _droppable(self, connection: "Connection") -> list[IndexVersion]:
        now = clock(self.store, connection)
        known = rows.read_rows(connection, self._of)
        retired = [one for one in known if one.status == "retired" and one.retired_at]
        served = [one for one in retired if one.activated_at is not None]
        newest = max(served, key=lambda one: one.retired_at or now, default=None)
        kept = {rows.before_active(rows.read_activations(connection, self._of))}
        kept.add(newest.version if newest else None)
        return [
            one
            for one in retired
            if one.version not in kept and one.retired_at and now - one.retired_at >= _KEPT
        ]

    aretire = twin(retire)
    adroppable = twin(droppable)
    adrop = twin(drop)
