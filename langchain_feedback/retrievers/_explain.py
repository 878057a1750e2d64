"""Say why each chunk of a retrieval stood where it did."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_feedback.documents import source_of
from langchain_feedback.errors import UnknownTraceError
from langchain_feedback.ranking.policies import RankingPolicy
from langchain_feedback.retrievers._embedding import embed
from langchain_feedback.retrievers._once import Once
from langchain_feedback.retrievers._pool import kernel_of, kernel_weights
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.records import CellKey, TraceChunk, VoteRow

__all__ = ["explained"]

Evidence = list[dict[str, Any]]


def explained(
    store: FeedbackStore, policy: RankingPolicy, trace_id: str, once: Once
) -> list[dict[str, Any]]:
    """Return one dict for each candidate of a trace, in final order.

    Raises:
        UnknownTraceError: If there is no such trace.
    """
    record = store.trace(trace_id)
    if record is None:
        msg = f"There is no trace {trace_id!r} in the store's namespace {store.namespace!r}."
        raise UnknownTraceError(msg)
    cells = [(chunk.cell_id, chunk.content_hash) for chunk in record.chunks]
    seen = store.snapshots(cells)
    evidence = _evidence(store, policy, record.question, once)
    return [
        {
            "chunk_id": chunk.chunk_id,
            "source": source_of(seen[cell][0].document) if seen.get(cell) else None,
            "attempt": chunk.attempt,
            "returned": chunk.returned,
            "base_rank": chunk.base_rank,
            "final_rank": chunk.final_rank,
            "origin": chunk.origin,
            "ranker_rank": chunk.ranker_rank,
            "belief": chunk.belief,
            "multiplier": _multiplier(chunk),
            "evidence": evidence.get(cell, []),
            "why": _why(chunk, _multiplier(chunk), evidence.get(cell, [])),
        }
        for chunk, cell in zip(record.chunks, cells, strict=True)
    ]


def _evidence(
    store: FeedbackStore, policy: RankingPolicy, question: str, once: Once
) -> Mapping[CellKey, Evidence]:
    """Return what is known now, by chunk: what says most first."""
    kernel = kernel_of(policy)
    least = 1.0 if kernel is None or store.embeddings is None else kernel.minimum
    vector = embed(store.embeddings, question, once) if least < 1 else None
    least = 1.0 if vector is None else least
    known = store.evidence_for(question, vector=vector, min_similarity=least)
    weights = kernel_weights(policy, known.questions).tolist()
    pairs = zip(known.questions, weights, strict=True)
    asked = {past.question_id: (past, weight) for past, weight in pairs}
    keys = list({cell.key: None for cell in known.cells})
    votes = _by_cell(store.votes_on(list(asked), keys))
    found: dict[CellKey, Evidence] = defaultdict(list)
    for cell in known.cells:
        past, weight = asked[cell.question_id]
        found[cell.key].append(
            {
                "question": past.text,
                "similarity": past.similarity,
                "kernel": weight,
                "positive": cell.positive,
                "negative": cell.negative,
                "signals": votes.get((cell.question_id, *cell.key), []),
            }
        )
    for of_chunk in found.values():
        of_chunk.sort(key=_strength, reverse=True)
    return found


def _by_cell(rows: Sequence[VoteRow]) -> Mapping[tuple[int, str, str], Evidence]:
    votes: dict[tuple[int, str, str], Evidence] = defaultdict(list)
    names = ("signal", "rating", "polarity", "weight", "actor", "received_at")
    for row in rows:
        vote = {name: getattr(row, name) for name in names}
        votes[row.question_id, row.chunk_id, row.content_hash].append(vote)
    return votes


def _multiplier(chunk: TraceChunk) -> float:
    # What no policy has scored, none has moved.
    return 1.0 if chunk.multiplier is None else chunk.multiplier


def _strength(row: Mapping[str, Any]) -> float:
    return float(row["kernel"] * abs(row["positive"] - row["negative"]))


def _why(chunk: TraceChunk, multiplied: float, evidence: Evidence) -> str:
    """Say in one sentence why a chunk is there, and where."""
    place = chunk.final_rank + 1
    if chunk.origin == "pinned":
        came = "did not return it" if chunk.base_rank is None else f"had it at {_place(chunk)}"
        text = f"A reviewer pinned it for this question; the base retriever {came}"
    elif chunk.origin == "injected":
        text = (
            f"Added at {place}, since people liked it{_where(evidence)}; the base retriever "
            "did not return it"
        )
    elif chunk.origin == "foldback":
        text = f"In the extra slot at {place}: an accepted answer to such a question rested on it"
    elif chunk.origin == "widened":
        text = (
            f"The fallback retriever found it, asked since such questions were often answered "
            f"badly; {_said(multiplied, evidence)}"
        )
    else:
        text = f"{_moved(chunk)}: {_learned(chunk)}{_said(multiplied, evidence)}"
    return text + ("." if chunk.returned else "; too far down to be returned.")


def _moved(chunk: TraceChunk) -> str:
    place = chunk.final_rank + 1
    if chunk.base_rank is None or chunk.base_rank == chunk.final_rank:
        return f"Stays at {place}"
    way = "up" if chunk.final_rank < chunk.base_rank else "down"
    return f"Moved {way} from {_place(chunk)} to {place}"


def _learned(chunk: TraceChunk) -> str:
    if chunk.ranker_rank is None or chunk.ranker_rank == chunk.base_rank:
        return ""
    return f"the learned ranker had it at {chunk.ranker_rank + 1}, and "


def _place(chunk: TraceChunk) -> int:
    return (chunk.base_rank or 0) + 1


def _said(multiplied: float, evidence: Evidence) -> str:
    if multiplied > 1:
        return f"feedback speaks for it{_where(evidence)}"
    if multiplied < 1:
        return f"feedback speaks against it{_where(evidence)}"
    return "feedback says nothing of it itself"


def _where(evidence: Evidence) -> str:
    return f", most of all under {evidence[0]['question']!r}" if evidence else ""
