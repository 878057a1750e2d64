"""Cases to try rankers on: frozen by version, and never alike to what a ranker learns from."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from langchain_feedback.loop._cases.drafts import credited, reviewed_drafts, sampled_drafts
from langchain_feedback.loop._cases.importing import found_drafts
from langchain_feedback.loop._cases.splits import CaseSplit
from langchain_feedback.loop._gating.strata import ORDINARY
from langchain_feedback.loop.labels import ReviewedQuestion, reviewed_questions
from langchain_feedback.store import eval_cases
from langchain_feedback.store.asking import read_asks
from langchain_feedback.store.eval_records import CaseDraft, EvalCase
from langchain_feedback.store.questions import question_key
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["EvalCase", "Frozen", "freeze_cases", "import_cases", "read_cases"]

_SAMPLED = 150


@dataclass(frozen=True)
class Frozen:
    """What freezing, or importing, did."""

    version: int
    """Of the newest set; 0: there is none yet."""
    added: int
    retired: int
    """Cases whose label was taken back or replaced."""
    left_out: int
    """Questions that could be cases, and are kept for teaching, or wait for a reviewer."""
    cases: int
    """How many the set has now."""
    by_stratum: Mapping[str, int]
    by_origin: Mapping[str, int]


def freeze_cases(
    store: "FeedbackStore",
    *,
    days: float = 28,
    sampled: int = _SAMPLED,
    now: datetime | None = None,
) -> Frozen:
    """Freeze what is known now; what is frozen stays as it is.

    Reviewed questions come in that are held out (see `question_sides`), and questions of
    ordinary traffic that would be: people credited a chunk, nobody complained, and nothing
    like it was reviewed or frozen. A case whose verdict or whose credit was taken back is
    retired; a newer verdict replaces it. Where anything is new the set has a new version; a
    second run changes nothing.

    Args:
        store: Where, and whose namespace.
        days: How far back ordinary traffic is sampled.
        sampled: The most sampled cases of a set.
        now: When; None: at this moment.

    Raises:
        ValueError: If `sampled` is negative.
    """
    if sampled < 0:
        msg = f"sampled must be at least 0, got {sampled!r}"
        raise ValueError(msg)
    listed = reviewed_questions(store, include_unreviewed=True)
    waiting = {question_key(one.question) for one in listed if one.needs_review}
    labels = {question_key(one.question): one for one in listed if not one.needs_review}
    named = [one for one in labels.values() if one.right]
    with reading(store) as connection:
        at = now or clock(store, connection)
        there = eval_cases.read_cases(connection, store.namespace)
        asked = read_asks(connection, store.namespace, since=at - timedelta(days=days))
        asks = [ask for ask in asked if ask.created_at <= at]
        samples = sampled_drafts(connection, store.namespace, asks)
        reviewed = reviewed_drafts(connection, store.namespace, named)
        void = _void(connection, store.namespace, there, labels)
        kept = [case for case in there if case.case_id not in void]
        keys = {case.key for case in kept}
        split = CaseSplit(connection, store.namespace, named, there, samples)
    fresh = [one for one in reviewed if split.evaluates(one) and one.key not in keys]
    free = split.free(keys | waiting | set(labels))
    room = max(0, sampled - sum(case.origin == "sampled" for case in kept))
    alike = len({one.key for one in samples} - keys) - len(free)
    return _freeze(store, [*fresh, *free[:room]], void, at, left_out=alike)


def import_cases(
    store: "FeedbackStore",
    rows: Iterable[Mapping[str, Any]],
    retriever: "Runnable[str, Any]",
    *,
    stratum: str = ORDINARY,
    fetch_k: int = 20,
    id_field: str | None = None,
    now: datetime | None = None,
) -> Frozen:
    """Freeze questions of one's own whose right chunks are known.

    Each is retrieved once, and leaves no trace. One that is like a question that a ranker
    learns from is left out; one that is a case already stays as it is.

    Args:
        store: Where, and whose namespace.
        rows: Each with `question`, and `relevant`: the ids of the chunks that answer it.
        retriever: The base retriever, with its whole pool: not a `FeedbackRetriever`, whose
            order is no longer the base's.
        stratum: What kind of questions they are: `failing`, `ordinary` or one's own.
        fetch_k: How many chunks a pool has, where the retriever takes an option `k`: as many
            as the `FeedbackRetriever` asks for.
        id_field: The metadata field that holds a chunk's id, if any.
        now: When; None: at this moment.

    Raises:
        ValueError: If a row lacks its question or its chunks, or it is a `FeedbackRetriever`.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.runnables import RunnableLambda
        >>> from langchain_feedback import FeedbackStore
        >>> chunks = [Document("5 days.", id="a"), Document("Keys rotate.", id="b")]
        >>> store = FeedbackStore("sqlite://")
        >>> rows = [{"question": "How long?", "relevant": ["a"]}]
        >>> import_cases(store, rows, RunnableLambda(lambda question: chunks)).by_stratum
        {'ordinary': 1}
    """
    found = found_drafts(
        store, rows, retriever, stratum=stratum, fetch_k=fetch_k, id_field=id_field
    )
    labels = [one for one in reviewed_questions(store) if one.right]
    with reading(store) as connection:
        at = now or clock(store, connection)
        there = eval_cases.read_cases(connection, store.namespace)
        split = CaseSplit(connection, store.namespace, labels, there, found)
    keys = {case.key for case in there}
    fresh = [one for one in split.untaught() if one.key not in keys]
    new = {one.key for one in found} - keys
    return _freeze(store, fresh, set(), at, left_out=len(new) - len(fresh))


def read_cases(store: "FeedbackStore", version: int | None = None) -> list[EvalCase]:
    """Return the cases of a set; those that are retired are in none.

    Args:
        store: Where, and whose namespace.
        version: Which set, with all before it; None: the newest.
    """
    with reading(store) as connection:
        return eval_cases.read_cases(connection, store.namespace, version)


def _freeze(
    store: "FeedbackStore",
    drafts: Sequence[CaseDraft],
    void: set[str],
    at: datetime,
    *,
    left_out: int,
) -> Frozen:
    """Write it in one transaction; another process may have done so in the meantime."""
    with writing(store) as (connection, _):
        eval_cases.retire_cases(connection, void, at)
        known = {case.case_id for case in eval_cases.read_cases(connection, store.namespace)}
        new = [one for one in drafts if eval_cases.case_id_of(store.namespace, one) not in known]
        version = eval_cases.newest_version(connection, store.namespace) + bool(new)
        eval_cases.add_cases(connection, store.namespace, new, version=version, at=at)
        cases = eval_cases.read_cases(connection, store.namespace)
    return Frozen(
        version=version,
        added=len(new),
        retired=len(void),
        left_out=left_out,
        cases=len(cases),
        by_stratum=dict(Counter(case.stratum for case in cases)),
        by_origin=dict(Counter(case.origin for case in cases)),
    )


def _void(
    connection: Connection,
    namespace: str,
    cases: Sequence[EvalCase],
    labels: Mapping[str, ReviewedQuestion],
) -> set[str]:
    """Return the cases whose label does not hold any more."""
    traces = [case.trace_id for case in cases if case.origin == "sampled" and case.trace_id]
    asks = {ask.trace_id: ask for ask in read_asks(connection, namespace, trace_ids=traces)}
    void = set()
    for case in cases:
        label = labels.get(case.key)
        if case.origin == "reviewed":
            named = {one.chunk_id for one in case.relevant}
            holds = label is not None and label.item_id == case.item_id
            holds = holds and label is not None and set(label.right) == named
        elif case.origin == "sampled":
            ask = asks.get(case.trace_id or "")
            names = {one.cell_id or one.chunk_id for one in credited(ask)} if ask else case.right
            ours = case.right <= names and not (ask and ask.against)
            # Nobody reviews such a case: another ask of the question takes its place.
            holds = ours and label is None and not case.changed
        else:
            holds = True
        void |= set() if holds else {case.case_id}
    return void
