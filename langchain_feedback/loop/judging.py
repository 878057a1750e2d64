"""How often the judges are right, by what reviewers say of chunks and of answers."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from langchain_feedback.store.loop_schema import review_items
from langchain_feedback.store.reviewing.items import ReviewEvent, read_events
from langchain_feedback.store.reviewing.verdicts import agreed, in_force, kappa
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["JudgeAccuracy", "JudgeCount", "judge_accuracy", "judged_items"]


@dataclass(frozen=True)
class JudgeCount:
    """How a judge's yes and no compare with what reviewers say."""

    yes_right: int
    """The judge said yes, and so do reviewers."""
    yes_wrong: int
    no_right: int
    """The judge said no, and so do reviewers."""
    no_wrong: int

    @property
    def judged(self) -> int:
        """How many of the judge's words reviewers had a say about."""
        return self.yes_right + self.yes_wrong + self.no_right + self.no_wrong

    @property
    def accuracy(self) -> float | None:
        """Which share of them is right, in [0, 1]; None without any."""
        return _share(self.yes_right + self.no_right, self.judged)

    @property
    def precision(self) -> float | None:
        """Which share of what the judge calls good is good; None without any."""
        return _share(self.yes_right, self.yes_right + self.yes_wrong)

    @property
    def recall(self) -> float | None:
        """Which share of what is good the judge calls good; None without any."""
        return _share(self.yes_right, self.yes_right + self.no_wrong)

    @property
    def agreement(self) -> float | None:
        """Cohen's kappa, which chance alone leaves at 0; None without any."""
        pairs = [("yes", "yes")] * self.yes_right + [("yes", "no")] * self.yes_wrong
        pairs += [("no", "no")] * self.no_right + [("no", "yes")] * self.no_wrong
        return kappa(pairs)


@dataclass(frozen=True)
class JudgeAccuracy:
    """Both judges. The figures are of reviewed questions: mostly of those that failed."""

    items: int
    """Verdicts that say something of a judge."""
    grades: JudgeCount
    """Chunks: graded yes or no, against named as answering the question or not. Where a reviewer
    names a right chunk or says that none exists, the others of the pool do not answer it."""
    grounded: JudgeCount
    """Answers: grounded or not, against found to be right. Wrong is an answer whose failure a
    reviewer puts down to `generation`; right is one whose suspicion he rejects."""


def judge_accuracy(
    store: "FeedbackStore", *, days: float = 28, now: datetime | None = None
) -> JudgeAccuracy:
    """Compare what judges said of answers with what reviewers say of them.

    What reviewers see is what went wrong, for the most part, so that a judge does worse here
    than on all traffic; compare one judge with another, or with itself, over the same items.

    Args:
        store: Where, and whose namespace.
        days: How far back, by when an item was decided.
        now: When; None: at this moment.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> judge_accuracy(FeedbackStore("sqlite://")).grades.accuracy is None
        True
    """
    now = now or datetime.now(UTC)
    with reading(store) as connection:
        events = read_events(connection, store.namespace, None)
        return judged_items(connection, store.namespace, events, now - timedelta(days=days), now)


def judged_items(
    connection: Connection,
    namespace: str,
    events: Iterable[ReviewEvent],
    since: datetime,
    until: datetime,
) -> JudgeAccuracy:
    """Return the accuracy over the items that were decided in a time; `events` are all."""
    history: dict[str, list[ReviewEvent]] = defaultdict(list)
    for event in events:
        history[event.item_id].append(event)
    row = review_items.c
    decided = (row.namespace == namespace) & (row.kind == "answer") & (row.state == "decided")
    wanted = decided & (row.decided_at >= since) & (row.decided_at <= until)
    columns = (row.item_id, row.reviews_required, row.failure_class, row.snapshot)
    grades: list[tuple[bool, bool]] = []
    grounded: list[tuple[bool, bool]] = []
    items = 0
    for item in connection.execute(select(*columns).where(wanted)):
        final = agreed(in_force(history[item.item_id]), item.reviews_required)
        if final is None:
            continue
        seen = json.loads(item.snapshot)
        new_grades = list(_grades(seen, final))
        new_grounded = list(_grounded(seen, final, item.failure_class))
        grades, grounded = grades + new_grades, grounded + new_grounded
        items += bool(new_grades or new_grounded)
    return JudgeAccuracy(items, _count(grades), _count(grounded))


def _grades(seen: Mapping[str, Any], final: ReviewEvent) -> Iterator[tuple[bool, bool]]:
    """Yield what the grader said of each chunk, and whether it answers the question."""
    if not final.right_chunks and not final.none_exists:
        return  # nobody was asked which one it is
    for chunk in seen.get("chunks") or ():
        if chunk.get("grade") in ("yes", "no"):
            yield chunk["grade"] == "yes", chunk["chunk_id"] in final.right_chunks


def _grounded(
    seen: Mapping[str, Any], final: ReviewEvent, found_class: str | None
) -> Iterator[tuple[bool, bool]]:
    """Yield whether the answer was held to be grounded, and whether it is right."""
    said = seen.get("grounded")
    if not isinstance(said, bool):
        return
    if final.verdict == "reject":
        yield said, True
    elif final.verdict == "confirm" and (final.failure_class or found_class) == "generation":
        yield said, False


def _count(pairs: list[tuple[bool, bool]]) -> JudgeCount:
    return JudgeCount(
        yes_right=pairs.count((True, True)),
        yes_wrong=pairs.count((True, False)),
        no_right=pairs.count((False, False)),
        no_wrong=pairs.count((False, True)),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
