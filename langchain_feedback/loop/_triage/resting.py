"""What an answer rests on, and the answers of a long time, a week at a time."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from sqlalchemy import Connection

from langchain_feedback.store.asking import Ask, AskedChunk, read_asks
from langchain_feedback.store.schema import ANSWER

__all__ = ["asks_between", "blamed_sources", "rests_on"]

_SLICE = timedelta(weeks=1)


def rests_on(ask: Ask) -> tuple[AskedChunk, ...]:
    """Return the chunks that an answer rests on: the cited ones, where citations are known.

    Where they are not, the whole prompt. An abstention rests on nothing, and neither does an
    answer that was found not to be grounded: its sources do not say what it says.
    """
    if ask.status == "abstained" or ask.grounded is False:
        return ()
    if any(chunk.cited is not None for chunk in ask.prompt):
        return tuple(chunk for chunk in ask.prompt if chunk.cited)
    return ask.prompt


def blamed_sources(ask: Ask) -> set[str]:
    """Return the sources that an answer's failure, or its success, belongs to.

    Those that it rests on; where people only say that some of its sources are wrong, those.
    """
    named = {said.target for said in ask.against if said.target != ANSWER}
    blamed = {chunk.source for chunk in ask.prompt if chunk.chunk_id in named}
    if not named or any(said.target == ANSWER for said in ask.against):
        blamed |= {chunk.source for chunk in rests_on(ask)}
    return blamed - {""}


def asks_between(
    connection: Connection, namespace: str, since: datetime, until: datetime
) -> Iterator[Ask]:
    """Yield the questions of a time, oldest first, never more in memory than those of a week."""
    start = since
    while start < until:
        end = min(start + _SLICE, until)
        yield from read_asks(connection, namespace, since=start, until=end)
        start = end
