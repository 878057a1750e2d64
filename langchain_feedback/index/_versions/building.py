"""Versions on their way: registered, filled by somebody else, and checked."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings

from langchain_feedback.index._versions import rows
from langchain_feedback.index._versions.base import OpenVersion, RegistryBase, check_status
from langchain_feedback.index._versions.checks import EmbeddingsOf
from langchain_feedback.index._versions.embedder import EmbedderFingerprint, fingerprint_of
from langchain_feedback.index._versions.ready import checked, objections
from langchain_feedback.index._versions.rows import IndexVersion
from langchain_feedback.index.errors import VersionConflictError, VersionRefusedError
from langchain_feedback.store.parts.base import twin
from langchain_feedback.store.transactions import clock, writing

if TYPE_CHECKING:
    from langchain_feedback.index.ledger import Ledger

__all__ = ["Building"]


class Building(RegistryBase):
    """The part of the registry that makes versions ready."""

    def register(
        self,
        version: str,
        embeddings: Embeddings | None,
        *,
        locator: Mapping[str, Any] | None = None,
    ) -> IndexVersion:
        """Begin a version, before its index is filled.

        Args:
            version: Its name, such as `v2`; a name is used once.
            embeddings: With what it is made and searched; None: it has no embedder, such as
                one of words. It embeds three short texts.
            locator: What `open_version` needs to find it. JSON; a folder that is unpickled
                should come with the hash of its files.

        Raises:
            VersionConflictError: If there is a version of that name with another locator or
                embedder. One that is still building is begun again.
            ValueError: If the name is blank, or the locator is no JSON.
        """
        if not version.strip():
            msg = "A version needs a name, such as 'v2'."
            raise ValueError(msg)
        fingerprint = None if embeddings is None else fingerprint_of(embeddings)
        told = _plain(locator or {})
        with writing(self.store) as (connection, _):
            new = IndexVersion(
                version, "building", told, fingerprint, 0, {}, clock(self.store, connection),
                activated_at=None, retired_at=None,
            )  # fmt: skip
            if not rows.add_row(connection, self._of, new):
                new = rows.read_row(connection, self._of, version)
                _check_same(new, told, fingerprint)
        return new

    def ready(
        self,
        version: str,
        *,
        open_version: OpenVersion,
        ledger: "Ledger | None" = None,
        vector_store: Any = None,
        chunk_count: int | None = None,
        k: int = 4,
        force: bool = False,
        embedder_of: EmbeddingsOf | None = None,
    ) -> IndexVersion:
        """Check a version, and let it be activated if it passes.

        Ledger and index agree, where a ledger is given; it has at least 95 % of the chunks of
        the active one; it is searched with the embedder that it was registered with; and of
        the chunks that people credited under the last 200 questions, at most two points of a
        hundred fewer are in the top `k` than in the active version. Of fewer than 50 such
        chunks one lost is more than that already: the error names the questions, and whether
        it matters is for a person to say (`force`). Nothing is recorded of these searches;
        each question is embedded once for each version.

        Args:
            version: Which.
            open_version: Opens it, and the active one, as they are opened to be searched.
            ledger: The ledger of its `IndexWriter`.
            vector_store: What the ledger is about; None: that of the opened retriever.
            chunk_count: How many chunks it has, where no ledger tells.
            k: How many documents of a search count.
            force: Whether a person wants it although it is smaller, or finds less. A wrong
                embedder, or an index that is not as its ledger says, is refused all the same.
            embedder_of: Returns the embedder of what `open_version` returns, where that is
                no retriever of a vector store.

        Returns:
            The version; its `checks` say what was found.

        Raises:
            VersionRefusedError: If it does not pass, or was active already; the registry
                keeps why, without the questions, of which the error names three.
            UnknownVersionError: If there is none of that name.
            ValueError: If nobody says how many chunks it has, or `k` is below 1.
        """
        new, active = self.get(version), self.active()
        check_status(new, ("building", "ready"), "checked")
        checks, count = checked(
            self.store, new, active, open_version, ledger=ledger, vector_store=vector_store,
            chunk_count=chunk_count, k=k, embedder_of=embedder_of,
        )  # fmt: skip
        against = objections(checks, force=force)
        told = {name: check.as_json() for name, check in checks.items()}
        forced = [] if against else [name for name, check in checks.items() if not check.ok]
        told["judged"] = {"against": active.version if active else None, "forced": forced}
        with writing(self.store) as (connection, _):
            now = rows.read_row(connection, self._of, version)
            check_status(now, ("building", "ready"), "checked")
            status = "building" if against else "ready"
            changes = {"status": status, "checks": told, "chunk_count": count}
            rows.change_row(connection, self._of, version, **changes)
        if against:
            why = "; ".join(against).rstrip(".")
            msg = f"Version {version!r} is not ready: {why}."
            raise VersionRefusedError(msg)
        return self.get(version)

    aregister = twin(register)
    aready = twin(ready)


def _plain(locator: Mapping[str, Any]) -> dict[str, Any]:
    """Return a locator as JSON gives it back."""
    try:
        told: dict[str, Any] = json.loads(json.dumps(dict(locator), allow_nan=False))
    except (TypeError, ValueError) as error:
        msg = f"A locator is kept as JSON, and this is none: {locator!r}"
        raise ValueError(msg) from error
    return told


def _check_same(
    known: IndexVersion, locator: Mapping[str, Any], embedder: EmbedderFingerprint | None
) -> None:
    """Let a build that was interrupted go on, and no other one take its name."""
    same = known.locator == locator and (known.embedder is None) == (embedder is None)
    if known.embedder and embedder:
        same &= embedder.differs_from(known.embedder) is None
    if known.status != "building" or not same:
        msg = (
            f"There is a version {known.version!r} already ({known.status}), for {known.locator}. "
            "Give the new one a name of its own."
        )
        raise VersionConflictError(msg)
