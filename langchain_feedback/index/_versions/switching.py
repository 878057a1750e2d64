"""Which version is searched: one transaction, and then word to the other readers."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langchain_feedback.index._versions import rows
from langchain_feedback.index._versions.base import Hook, RegistryBase, check_status
from langchain_feedback.index._versions.rows import Activation, IndexVersion
from langchain_feedback.index.errors import (
    NoActiveVersionError,
    VersionConflictError,
    VersionRefusedError,
)
from langchain_feedback.store.parts.base import twin
from langchain_feedback.store.transactions import clock, writing

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Switched", "Switching"]

logger = logging.getLogger(__name__)

_ROUNDS = 3


@dataclass(frozen=True)
class Switched:
    """What an activation or a rollback came to."""

    active: IndexVersion
    before: str | None
    """What was active until then; the same one where nothing was changed."""
    untold: Mapping[str, str] = field(default_factory=dict)
    """Hooks that failed, and why: other readers are where they were. `tell` tries again."""


class Switching(RegistryBase):
    """The part of the registry that switches versions."""

    def activate(
        self, version: str, *, expected: str | None, actor: str | None = None
    ) -> Switched:
        """Let a version be searched from now on, in the place of the one that is expected.

        Args:
            version: One that is ready, or was active before.
            expected: Which one is active, as far as the caller knows; None: none is.
            actor: Who does it.

        Returns:
            What is active now. A version that is active already changes nothing.

        Raises:
            VersionConflictError: If another one is active; nothing was changed.
            VersionRefusedError: If it is not ready, and was never active.
            UnknownVersionError: If there is none of that name.
        """
        with writing(self.store) as (connection, _):
            active = rows.read_active(connection, self._of)
            if active is None or active.version != version:
                _check_expected(active, expected)
                self._switch(connection, version, active, "activate", actor)
        return self._told(active)

    def rollback(self, *, expected: str | None = None, actor: str | None = None) -> Switched:
        """Go back to what was active before the last activation that still stands.

        Args:
            expected: Which one is to be taken back: of two who take back the same one, one
                goes one step. None: whatever is active.
            actor: Who does it.

        Raises:
            VersionConflictError: If another one is active; nothing was changed.
            VersionRefusedError: If there is nothing to go back to, or only a build that has got
                the name of one that was dropped, and is not ready.
            UnknownVersionError: If that was dropped.
        """
        with writing(self.store) as (connection, _):
            active = rows.read_active(connection, self._of)
            if expected is not None:
                _check_expected(active, expected)
            before = rows.before_active(rows.read_activations(connection, self._of))
            if active is None or before is None:
                msg = "There is no version to go back to."
                raise VersionRefusedError(msg)
            self._switch(connection, before, active, "rollback", actor)
        return self._told(active)

    def tell(self) -> dict[str, str]:
        """Tell the hooks which version is active; return those that failed, and why."""
        failed: dict[str, str] = {}
        active = self.active()
        for _ in range(_ROUNDS):
            if active is None:
                break
            told, failed = active, _call(self.hooks, active)
            active = self.active()
            # Of two who switch at once, the one who tells last must tell the newest.
            if active is not None and active.key == told.key:
                break
        return failed

    def _switch(
        self,
        connection: "Connection",
        version: str,
        active: IndexVersion | None,
        action: str,
        actor: str | None,
    ) -> None:
        known = rows.read_row(connection, self._of, version)
        check_status(known, ("ready", "retired"), "activated")
        if known.status == "retired" and known.activated_at is None:
            msg = (
                f"Version {version!r} was given up before it was ever active, and nothing says "
                "that it passed its checks. Build a new one."
            )
            raise VersionRefusedError(msg)
        at, before = clock(self.store, connection), active.version if active else None
        if not rows.switch(connection, self._of, version, before, at):
            msg = "Another process switched at the same time. Nothing was changed; look again."
            raise VersionConflictError(msg)
        history = rows.read_activations(connection, self._of)
        seq = history[-1].seq + 1 if history else 1
        new = Activation(seq, action, version, before, actor, at)
        rows.note_activation(connection, self._of, new)

    def _told(self, before: IndexVersion | None) -> Switched:
        untold = self.tell()
        active = self.active()
        if active is None:
            msg = "The version was taken away while other readers were told of it."
            raise NoActiveVersionError(msg)
        return Switched(active, before.version if before else None, untold)

    aactivate = twin(activate)
    arollback = twin(rollback)
    atell = twin(tell)


def _call(hooks: Sequence[Hook], active: IndexVersion) -> dict[str, str]:
    failed: dict[str, str] = {}
    for at, hook in enumerate(hooks):
        name = getattr(hook, "__name__", type(hook).__name__)
        try:
            hook(active)
        except Exception as error:  # noqa: BLE001  the switch is kept already
            failed[f"{at}: {name}"] = f"{type(error).__name__}: {error}"
            logger.warning(
                "Version %r is active, and %s was not told: %r", active.version, name, error
            )
    return failed


def _check_expected(active: IndexVersion | None, expected: str | None) -> None:
    version = active.version if active else None
    if version != expected:
        msg = (
            f"The active version is {version!r}, not {expected!r}: somebody was faster. Nothing "
            "was changed; look again."
        )
        raise VersionConflictError(msg)
