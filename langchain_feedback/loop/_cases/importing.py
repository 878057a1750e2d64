"""Questions of one's own as cases: what the base retriever finds for them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.documents import Document

from langchain_feedback.documents import chunk_key, content_hash, unique_documents
from langchain_feedback.ranking.features import title_of
from langchain_feedback.retrievers._base_call import ask, takes
from langchain_feedback.retrievers.feedback import FeedbackRetriever
from langchain_feedback.store.chunks import take_snapshots
from langchain_feedback.store.eval_cases import chunk_rows
from langchain_feedback.store.eval_records import CaseChunk, CaseDraft, RightChunk
from langchain_feedback.store.records import CellKey
from langchain_feedback.store.transactions import clock, reading, writing
from langchain_feedback.traces import UNRECORDED_KEY, storable

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["found_drafts"]

_PAGE = 500
Named: TypeAlias = tuple[str, str]
"""A chunk's id, and the hash of its text."""


def found_drafts(
    store: "FeedbackStore",
    rows: Iterable[Mapping[str, Any]],
    retriever: "Runnable[str, Any]",
    *,
    stratum: str,
    fetch_k: int,
    id_field: str | None = None,
) -> list[CaseDraft]:
    """Retrieve each question once, and make a case of it; see `import_cases`.

    Raises:
        ValueError: If a row lacks its question or its chunks, or the retriever is no base.
    """
    if isinstance(retriever, FeedbackRetriever):
        msg = "Pass the base retriever: a FeedbackRetriever's order is no longer the base's."
        raise ValueError(msg)  # noqa: TRY004  as for other values that do not fit
    asked = [_checked(number, row) for number, row in enumerate(rows, start=1)]
    config: Any = {"metadata": {UNRECORDED_KEY: True}}
    # As a FeedbackRetriever asks for its pool; LangChain's own default are four.
    options = {"k": fetch_k} if takes(retriever, "k") else {}
    pools = [
        unique_documents(ask(retriever, question, config, options), id_field)
        for question, _ in asked
    ]
    cells = _kept(store, pools, id_field)
    with reading(store) as connection:
        right = {chunk_id for _, ids in asked for chunk_id in ids}
        rows_now = chunk_rows(connection, store.namespace, right)
    return [
        _draft(question, ids, _chunks(pool, cells, id_field), rows_now, stratum)
        for (question, ids), pool in zip(asked, pools, strict=True)
    ]


def _kept(
    store: "FeedbackStore", pools: Iterable[Sequence[Document]], id_field: str | None
) -> dict[Named, CellKey]:
    """Take snapshots of all chunks, which show later that one has changed; return their cells.

    By the order of their ids, as traces do, and a page at a time: an import waits for no row
    that live traffic holds while that waits for one of the import's.
    """
    found = {_name(document, id_field): document for pool in pools for document in pool}
    names = sorted(found)
    cells: dict[Named, CellKey] = {}
    for start in range(0, len(names), _PAGE):
        page = names[start : start + _PAGE]
        documents = [found[name] for name in page]
        with writing(store, lock="traces") as (connection, _):
            at = clock(store, connection)
            taken = take_snapshots(connection, store.namespace, documents, at, id_field)
        cells |= dict(zip(page, taken, strict=True))
    return cells


def _name(document: Document, id_field: str | None) -> Named:
    return chunk_key(document, id_field), content_hash(document)


def _checked(number: int, row: Mapping[str, Any]) -> tuple[str, list[str]]:
    question, ids = row.get("question"), row.get("relevant")
    listed = isinstance(ids, Iterable) and not isinstance(ids, str)
    named = [str(one) for one in ids] if listed and ids else []
    if not isinstance(question, str) or not question.strip() or not named:
        msg = f"Row {number} needs a `question` and, in `relevant`, ids of chunks; got {row!r}"
        raise ValueError(msg)
    return storable(question), list(dict.fromkeys(named))


def _chunks(
    pool: Sequence[Document], cells: Mapping[Named, CellKey], id_field: str | None
) -> list[CaseChunk]:
    return [
        CaseChunk(
            chunk_id=chunk_key(document, id_field),
            cell_id=cell_id,
            content_hash=text_hash,
            text=storable(document.page_content),
            source=storable(str(document.metadata.get("source") or "")),
            heading=storable(title_of(document)),
            base_rank=rank,
        )
        for rank, document in enumerate(pool)
        for cell_id, text_hash in [cells[_name(document, id_field)]]
    ]


def _draft(
    question: str,
    ids: Sequence[str],
    pool: Sequence[CaseChunk],
    rows: Mapping[str, Mapping[Any, Any]],
    stratum: str,
) -> CaseDraft:
    found = {chunk.chunk_id: chunk for chunk in pool}
    relevant = []
    for chunk_id in ids:
        if chunk_id in found:
            chunk = found[chunk_id]
            relevant.append(RightChunk(chunk_id, chunk.cell_id, chunk.content_hash))
        else:
            row = rows.get(chunk_id)
            known = (row["cell_id"], row["content_hash"]) if row else ("", "")
            relevant.append(RightChunk(chunk_id, *known))
    return CaseDraft(
        question=question, relevant=tuple(relevant), pool=tuple(pool), origin="imported",
        stratum=stratum,
    )  # fmt: skip
