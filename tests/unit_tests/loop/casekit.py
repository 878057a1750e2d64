"""Frozen cases and stored rankers for tests: of each it is known how the other fares on it."""

from datetime import UTC, datetime
from functools import cache
from itertools import count

from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from langchain_feedback.loop.cases import import_cases
from langchain_feedback.loop.splitting import is_held_out
from langchain_feedback.ranking.features import WordWeights
from langchain_feedback.ranking.linear import LinearRanker
from langchain_feedback.store.questions import question_key
from langchain_feedback.store.rankers import RankerRecord, add_ranker, digest_of
from langchain_feedback.store.transactions import writing
from tests.unit_tests.loop.kit import asked, said

__all__ = ["BASE", "BY_WORDS", "UPSIDE_DOWN", "clicked", "frozen", "pool", "question", "stored"]

BY_WORDS = (0.1, 10.0, 0.0)
"""Puts the chunk first that holds the question's words: the right one."""
UPSIDE_DOWN = (-10.0, 0.0, 0.0)
BASE = (4.0, 0.0, 0.0)
WHEN = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@cache
def question(number):
    """A question that the digest holds out, so that it may be sampled."""
    texts = (f"Where is thing{number} kept, room {at}?" for at in count())
    return next(text for text in texts if is_held_out({question_key(text)}))


def pool(number, right=2, size=5, source=None):
    """Chunks of which one holds the question's word, at a place of the base's order."""
    return [
        Document(
            f"The thing{number} is in box {number}." if at == right else f"Filler{number}x{at}.",
            id=f"{number}-{at}",
            metadata={"source": source or f"{number}.md"},
        )
        for at in range(size)
    ]


def frozen(store, number, *, start=0, right=2, stratum="ordinary", source=None, size=5):
    """Import cases; the right chunk stands at a place from 0, or at each one's of a list."""
    places = [right] * number if isinstance(right, int) else list(right)
    numbered = list(enumerate(places, start=start))
    pools = {question(n): pool(n, at, size, source) for n, at in numbered}
    rows = [
        {"question": question(n), "relevant": [pools[question(n)][at].id]} for n, at in numbered
    ]
    return import_cases(store, rows, RunnableLambda(pools.__getitem__), stratum=stratum)


def stored(store, name, weights=BY_WORDS, *, taught=(), kind="linear", artifact=None):
    """A linear ranker with these weights for rank, words and title, as the store holds it."""
    ranker = LinearRanker(weights, (0.0,) * 3, (1.0,) * 3, WordWeights.of([]), name)
    artifact = artifact or ranker.to_json()
    record = RankerRecord(name, kind, artifact, digest_of(artifact), name, tuple(taught), 30, WHEN)
    with writing(store) as (connection, _):
        assert add_ranker(connection, store.namespace, record)
    return record


def clicked(store, number, *, right=2, actor=None, at=None, text=None, chunks=None, **facts):
    """Ordinary traffic: somebody asked, and opened a source."""
    chunks = chunks or pool(number, right)
    trace_id = asked(
        store, text or question(number), chunks, actor=actor or f"u{number}", at=at,
        answer="In a box.", **facts,
    )  # fmt: skip
    said(store, trace_id, "source_click", target=chunks[right], at=at)
    return trace_id
