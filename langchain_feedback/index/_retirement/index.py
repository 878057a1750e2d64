"""Where a retirement meets the index: what is in it, and what was put back into it."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from langchain_core.documents import Document
from sqlalchemy import Connection, select

from langchain_feedback.documents import content_hash, text_key
from langchain_feedback.index._retirement.audit import Action, actions_of
from langchain_feedback.index._retirement.facts import Known
from langchain_feedback.index._retirement.plan import Candidate, SourceChunk
from langchain_feedback.index._retirement.rules import RetirementRules
from langchain_feedback.index._writer.stores import fingerprint, found_in, identified
from langchain_feedback.index.errors import IndexWriteError, UnsupportedIndexError
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.schema import chunks

if TYPE_CHECKING:
    from langchain_feedback.index.writer import IndexWriter

__all__ = [
    "NotRestoredError",
    "Present",
    "as_candidate",
    "as_sibling",
    "present",
    "put_back",
    "to_undo",
]

Present = Mapping[str, tuple[str, Document]]
"""By the store's id: the index's, and the document as it stands there."""


class NotRestoredError(IndexWriteError):
    """A chunk cannot come back, or did not come back as it was."""


def present(writer: "IndexWriter", known: Iterable[Known]) -> Present:
    """Look chunks up in the index."""
    keys = {one.chunk_id: key for one in known if (key := _key(writer, one))}
    held = _held(writer, keys.values())
    return {of: (key, held[key]) for of, key in keys.items() if key in held}


def as_candidate(one: Known, there: Present, rules: RetirementRules) -> Candidate:
    """Return a chunk as a plan judges it."""
    key, document = there.get(one.chunk_id, ("", None))
    if document is None and one.hidden is not None:
        # A run that died may have removed it: the next one says so.
        key, document = str(one.hidden.document.id), one.hidden.document
    if document is not None and content_hash(document) != one.content_hash:
        document = None
    return Candidate(
        chunk_id=one.chunk_id,
        index_id=key,
        content_hash=one.content_hash,
        source=one.source,
        scope=one.scope,
        gated=one.gated,
        said=one.said,
        condemned=rules.condemns(one.said),
        kept_by=one.kept_by,
        hidden_since=one.hidden and one.hidden.at,
        document=document,
    )


def as_sibling(one: Known, there: Present) -> SourceChunk:
    """Return a chunk as its source counts it; one that is shown must be in the index."""
    document = there[one.chunk_id][1] if one.chunk_id in there else None
    held = document is not None and content_hash(document) == one.content_hash
    return SourceChunk(
        chunk_id=one.chunk_id,
        source=one.source,
        scope=one.scope,
        # What is live by the store alone may be gone for long: nothing of the source's text.
        length=len(one.document.page_content) if held or one.status != "live" else 0,
        live=one.status == "live" and held,
        gated=bool(one.gated),
    )


def to_undo(connection: Connection, namespace: str, name: str) -> list[Action]:
    """Return all that stands between some chunks and the index, oldest first.

    Args:
        connection: A transaction.
        namespace: Whose.
        name: The id of an action or of a run. Of its chunks, later actions count as well.

    Raises:
        NotRestoredError: If there is nothing of that name, or a chunk has another text by now,
            or its text was forgotten.
    """
    named = actions_of(connection, namespace, named=name)
    if not named:
        msg = f"There is no action and no run {name!r} that a retirement of {namespace!r} did."
        raise NotRestoredError(msg)
    standing = [one for one in named if _stands(one)]
    if forgotten := sorted(one.target for one in standing if one.before.get("forgotten")):
        msg = (
            f"The text of {forgotten[0]!r} was forgotten: nothing is left to restore it from. "
            "Restore the other actions of the run by their own ids."
        )
        raise NotRestoredError(msg)
    wanted = {_what(one) for one in standing}
    _refuse_others(connection, namespace, dict(wanted))
    every = actions_of(connection, namespace, targets=[target for target, _ in wanted])
    return [one for one in every if _stands(one) and _what(one) in wanted]


def put_back(writer: "IndexWriter", documents: Mapping[str, Document]) -> None:
    """Write documents that are not in the index under the ids that they had, and look.

    Raises:
        NotRestoredError: If the index holds another text under an id, or does not return what
            was put into it.
    """
    held = _held(writer, documents)
    for key, document in held.items():
        if content_hash(document) != content_hash(documents[key]):
            msg = f"The index holds another text under the id {key!r}: delete that first."
            raise NotRestoredError(msg)
    missing = [document for key, document in documents.items() if key not in held]
    if not missing:
        return
    writer.apply(writer.plan(missing, complete=False))
    back = _held(writer, (str(document.id) for document in missing))
    for document in missing:
        found = back.get(str(document.id))
        if found is None or fingerprint(found) != fingerprint(document):
            msg = f"The index did not return {document.id!r} as it was written."
            raise NotRestoredError(msg)


def _key(writer: "IndexWriter", one: Known) -> str:
    """Return the id under which the writer has a chunk; empty: the index takes no such id."""
    document = one.document
    known_as = None if one.chunk_id == text_key(document) else one.chunk_id
    named = Document(document.page_content, id=known_as, metadata={"source": one.source})
    try:
        return next(iter(identified([named], writer.vector_store)))
    except UnsupportedIndexError:
        return ""


def _held(writer: "IndexWriter", ids: Iterable[str]) -> dict[str, Document]:
    """Return what is in the index, each with its id and with its own metadata only."""
    found = found_in(writer.vector_store, sorted(set(ids)))
    named = (one.model_copy(update={"id": key}) for key, one in found.items())
    return identified(named, writer.vector_store)


def _stands(one: Action) -> bool:
    return one.undone_by is None and one.action in ("demote", "remove")


def _what(one: Action) -> tuple[str, str]:
    return one.target, str(one.before["content_hash"])


def _refuse_others(connection: Connection, namespace: str, hashes: Mapping[str, str]) -> None:
    found: dict[str, str] = {}
    for page in batched(sorted(hashes)):
        mine = (chunks.c.namespace == namespace) & chunks.c.chunk_id.in_(page)
        for row in connection.execute(
            select(chunks.c.chunk_id, chunks.c.content_hash).where(mine)
        ):
            found[row.chunk_id] = row.content_hash
    if changed := sorted(key for key in hashes if found.get(key) != hashes[key]):
        msg = f"The text of {changed[0]!r} is another one by now, or is gone: it stays as it is."
        raise NotRestoredError(msg)
