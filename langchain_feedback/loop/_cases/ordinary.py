"""Ordinary traffic for reviewers: some of what went well, drawn by chance."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from langchain_feedback.store.asking import Ask
from langchain_feedback.store.loop_schema import review_items
from langchain_feedback.store.questions import question_key

__all__ = ["DRAWN", "draw_ordinary", "first_items"]

DRAWN = (
    "Drawn by chance from what was asked, and nobody complained: name the chunk that answers "
    "it, so that a ranker is tried on what goes well, too."
)
_WEEK = timedelta(days=7)


def draw_ordinary(
    asks: Iterable[Ask],
    listed: Iterable[Ask],
    made: Mapping[int, datetime],
    count: int,
    now: datetime,
) -> list[Ask]:
    """Draw questions that found something and that nobody complained of, each once.

    The draw is by a digest of the week and the question: the same in every process, and
    another one next week. Each question counts once, however often it is asked, and its newest
    ask stands for it. What the queue had before this week is not drawn again.

    Args:
        asks: What was asked, oldest first.
        listed: What goes to reviewers anyway.
        made: When the first item of each question was made: see `first_items`.
        count: How many, at least 0.
        now: In which week.

    Raises:
        ValueError: If `count` is negative.
    """
    if count < 0:
        msg = f"ordinary must be at least 0, got {count!r}"
        raise ValueError(msg)
    asked, week = list(asks), _week_of(now)
    out = {ask.question_id for ask in (*listed, *asked) if ask.against or ask.found_nothing}
    out |= {ask.question_id for ask in listed}
    out |= {question_id for question_id, at in made.items() if _week_of(at) < week}
    newest = {ask.question_id: ask for ask in asked if ask.question_id not in out}
    return sorted(newest.values(), key=lambda ask: _chance(week, ask))[:count]


def first_items(connection: Connection, namespace: str) -> dict[int, datetime]:
    """Return when the first review item of each question was made, whatever became of it."""
    row = review_items.c
    mine = (row.namespace == namespace) & (row.kind == "answer") & row.question_id.is_not(None)
    rows = select(row.question_id, row.created_at).where(mine).order_by(row.created_at.desc())
    return {found.question_id: found.created_at for found in connection.execute(rows)}


def _week_of(at: datetime) -> int:
    return int(at.timestamp() // _WEEK.total_seconds())


def _chance(week: int, ask: Ask) -> str:
    return hashlib.sha256(f"{week}:{question_key(ask.question)}".encode()).hexdigest()
