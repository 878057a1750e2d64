"""The flywheel lab: do ratings of answers make the next answers better, and which kind does?

The five questions of the handbook are asked in turn, of a word search behind a
`FeedbackRetriever`. An answer is its first two chunks; it is wrong unless all the evidence is
among them. Each answer is rated, and the ratings move the next retrievals.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from langchain_core.documents import Document

from langchain_feedback.demo.flywheel_records import (
    DIGITS,
    FlywheelRun,
    FlywheelSettings,
    Moment,
    Policy,
    Signal,
)
from langchain_feedback.demo.handbook import golden_questions, handbook_documents, stop_words
from langchain_feedback.documents import chunk_key
from langchain_feedback.local.tfidf import TfidfRetriever
from langchain_feedback.ranking.policies import AverageRating
from langchain_feedback.retrievers.feedback import FeedbackRetriever
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.traces import trace_id_of

__all__ = ["FlywheelRun", "FlywheelSettings", "Moment", "Policy", "Signal", "run_flywheel"]

_ANSWER_SIZE = 2
_CANDIDATES = 4
_REVIEW_EVERY = 10
_REVIEWED_QUESTIONS = 2
_GOOD, _BAD = 5, 1
_TIMEOUT_S = 60.0
"""On a busy computer, too, the lab's retrievals wait for their feedback."""
_LABELS = ("export", "refund", "down", "credit", "cancel")
"""Short names of the questions, in their order, for `scores`."""


def run_flywheel(
    settings: FlywheelSettings | None = None, *, database: Path | None = None
) -> FlywheelRun:
    """Run the lab, all of it through `FeedbackStore` and `FeedbackRetriever` on a SQLite file.

    Args:
        settings: What to run; the library's defaults, with citations.
        database: A file to make and to keep; without it, one in a temporary folder.

    Raises:
        ValueError: If `database` exists, or its folder does not.

    Example:
        >>> run = run_flywheel(FlywheelSettings(events=10))
        >>> run.as_json()["wrong_by_question"]
        [0, 2, 2, 1, 0]
    """
    settings = settings or FlywheelSettings()
    with (
        _new_file(database) as path,
        FeedbackStore(f"sqlite:///{path}", timeout_s=_TIMEOUT_S) as store,
    ):
        return FlywheelRun(settings, tuple(_Lab(store, settings).moments()))


class _Look(NamedTuple):
    """What one question finds."""

    order: tuple[str, ...]
    scores: Mapping[str, float]


class _Lab:
    """The people of the lab: they ask, they rate, and one of them reviews."""

    def __init__(self, store: FeedbackStore, settings: FlywheelSettings) -> None:
        self._settings = settings
        self._store = store
        self._chunks = {chunk_key(document): document for document in handbook_documents()}
        self._retriever = _make_retriever(store, settings.policy, self._chunks)
        self._golden = golden_questions()
        self._looks = [self._look(at) for at in range(len(self._golden))]
        self._wrong = [0] * len(self._golden)
        self._wrong_at_review = list(self._wrong)
        self._pins = 0

    def moments(self) -> Iterator[Moment]:
        """Yield how things stand before the first event and after each."""
        now = self._moment(0, None)
        yield now
        for event in range(1, self._settings.events + 1):
            self._ask((event - 1) % len(self._golden))
            if self._settings.reviewer and event % _REVIEW_EVERY == 0:
                self._review()
            now = self._moment(event, now)
            yield now

    def _ask(self, at: int) -> None:
        """Ask a question, and rate the answer."""
        question, evidence = self._golden[at]
        documents = self._retriever.invoke(question)
        answer = documents[:_ANSWER_SIZE]
        good = set(evidence) <= {chunk_key(document) for document in answer}
        self._wrong[at] += not good
        self._rate(trace_id_of(documents), answer, evidence, good=good)
        self._looks[at] = self._look(at)

    def _rate(
        self, trace_id: str, answer: Sequence[Document], evidence: Sequence[str], *, good: bool
    ) -> None:
        """Rate an answer as an anonymous visitor, so that no vote replaces an older one."""
        signal, store = self._settings.signal, self._store
        text = "\n".join(document.page_content for document in answer)
        liked = [document for document in answer if chunk_key(document) in evidence]
        cites = signal is Signal.CITED
        store.update_trace(
            trace_id,
            answer=text,
            status="answered",
            in_prompt=answer,
            cited=liked if cites else None,
            # What quotes a source is grounded, though half of the answer may be missing.
            grounded=bool(liked) if cites else None,
        )
        if signal is not Signal.CLICKS:
            store.rate(trace_id, _GOOD if good else _BAD)
            return
        for document in answer:
            store.rate(trace_id, _GOOD if document in liked else _BAD, target=document)

    def _review(self) -> None:
        """Pin what the answers lack, for the questions that went wrong most since last time."""
        since = [now - then for now, then in zip(self._wrong, self._wrong_at_review, strict=True)]
        worst = sorted(range(len(since)), key=lambda at: -since[at])[:_REVIEWED_QUESTIONS]
        for at in (at for at in worst if since[at]):
            question, evidence = self._golden[at]
            lacking = [one for one in evidence if one not in self._looks[at].order[:_ANSWER_SIZE]]
            for chunk_id in lacking:
                self._store.pin(question, self._chunks[chunk_id], actor="reviewer")
            self._pins += len(lacking)
            self._looks[at] = self._look(at)
        self._wrong_at_review = list(self._wrong)

    def _look(self, at: int) -> _Look:
        """See how all candidates of a question stand now. Nobody rates this retrieval."""
        documents = self._retriever.invoke(self._golden[at].question, k=len(self._chunks))
        scores = {
            f"{chunk_key(document)}@{_LABELS[at]}": round(
                document.metadata["feedback"]["multiplier"], DIGITS
            )
            for document in documents
        }
        return _Look(tuple(chunk_key(document) for document in documents), scores)

    def _moment(self, event: int, before: Moment | None) -> Moment:
        orders = tuple(look.order for look in self._looks)
        scores = {key: score for look in self._looks for key, score in look.scores.items()}
        new_order = before is not None and orders != before.orders
        new_scores = before is not None and scores != before.scores
        return Moment(
            orders=orders,
            scores=scores,
            recall=tuple(map(_recall, orders, (golden.evidence for golden in self._golden))),
            wrong=tuple(self._wrong),
            pins=self._pins,
            last_order_change=event if new_order else before.last_order_change if before else 0,
            last_score_change=event if new_scores else before.last_score_change if before else 0,
        )


def _make_retriever(
    store: FeedbackStore, policy: Policy, chunks: Mapping[str, Document]
) -> FeedbackRetriever:
    base = TfidfRetriever.from_documents(
        list(chunks.values()), k=_CANDIDATES, stop_words=stop_words()
    )

    def resolve(ids: Sequence[str]) -> list[Document]:
        return [chunks[chunk_id] for chunk_id in ids if chunk_id in chunks]

    if policy is Policy.AVERAGE:
        return FeedbackRetriever(
            base_retriever=base,
            store=store,
            k=_CANDIDATES,
            fetch_k=_CANDIDATES,
            policy=AverageRating(),
            inject=0,
            resolve=resolve,
        )
    return FeedbackRetriever(base_retriever=base, store=store, k=_CANDIDATES, resolve=resolve)


def _recall(order: Sequence[str], evidence: Sequence[str]) -> float:
    return len(set(order[:_ANSWER_SIZE]).intersection(evidence)) / len(evidence)


@contextmanager
def _new_file(path: Path | None) -> Iterator[Path]:
    if path is None:
        # A store that is not closed in time must not fail the run that is already done.
        with TemporaryDirectory(prefix="flywheel-", ignore_cleanup_errors=True) as folder:
            yield Path(folder) / "feedback.db"
        return
    if path.exists():
        msg = f"{path} exists, and the lab starts from nothing. Name a file that does not exist."
        raise ValueError(msg)
    if not path.parent.is_dir():
        msg = f"There is no folder {path.parent} to make {path.name} in."
        raise ValueError(msg)
    yield path
