"""`explain`: each chunk's place, the evidence for it, and why, in one sentence."""

import numpy as np
import pytest

from langchain_feedback import trace_id_of
from langchain_feedback.errors import StoreError, UnknownTraceError
from langchain_feedback.ranking.policies import AverageRating
from langchain_feedback.ranking.views import Scores
from tests.fakes import ListRetriever
from tests.unit_tests.retrievers.feedback_kit import (
    MONEY,
    REFUND,
    SERVER,
    chunks,
    ids,
    marks,
    run,
    vote,
    wrap,
)

FIELDS = [
    "chunk_id",
    "source",
    "attempt",
    "returned",
    "base_rank",
    "final_rank",
    "origin",
    "ranker_rank",
    "belief",
    "multiplier",
    "evidence",
    "why",
]


def explained(retriever, question=REFUND):
    found = retriever.invoke(question)
    rows = retriever.explain(trace_id_of(found))
    return found, rows, {row["chunk_id"]: row for row in rows}


def test_without_feedback_nothing_speaks(store):
    _, rows, by_id = explained(wrap(store))
    assert list(rows[0]) == FIELDS
    assert [row["chunk_id"] for row in rows] == ["c0", "c1", "c2", "c3", "c4", "c5"]
    assert [row["final_rank"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [row["returned"] for row in rows] == [True] * 3 + [False] * 3
    assert by_id["c0"] == {
        "chunk_id": "c0",
        "source": "0.md",
        "attempt": 1,
        "returned": True,
        "base_rank": 0,
        "final_rank": 0,
        "origin": "base",
        "ranker_rank": None,
        "belief": 0.0,
        "multiplier": 1.0,
        "evidence": [],
        "why": "Stays at 1: feedback says nothing of it itself.",
    }
    assert by_id["c3"]["why"].endswith("; too far down to be returned.")


def test_what_moved_and_what_made_it_move(store):
    retriever = wrap(store)
    vote(retriever, "c4", times=2)
    vote(retriever, "c0", rating=1, question=MONEY, times=2)
    found, _, by_id = explained(retriever)
    liked, disliked = by_id["c4"], by_id["c0"]
    shown = next(one for one in found if one.id == "c4")
    assert liked["belief"] == marks(shown)["belief"]
    assert liked["multiplier"] == pytest.approx(marks(shown)["multiplier"])
    assert liked["why"] == (
        f"Moved up from 5 to 1: feedback speaks for it, most of all under {REFUND!r}."
    )
    (row,) = liked["evidence"]
    assert {key: row[key] for key in ("question", "similarity", "kernel", "negative")} == {
        "question": REFUND,
        "similarity": 1.0,
        "kernel": 1.0,
        "negative": 0.0,
    }
    assert row["positive"] == pytest.approx(2, abs=1e-3)
    votes = [(vote["signal"], vote["rating"], vote["polarity"]) for vote in row["signals"]]
    assert votes == [("rating", 5, 1)] * 2
    assert {vote["actor"] for vote in row["signals"]} == {"ann0", "ann1"}
    (row,) = disliked["evidence"]
    assert row["question"] == MONEY
    assert row["similarity"] == pytest.approx(0.985, abs=1e-3)
    assert row["kernel"] == pytest.approx(0.848, abs=1e-3)
    assert disliked["why"].startswith("Moved down from 1 to ")
    assert "feedback speaks against it, most of all under" in disliked["why"]
    assert by_id["c1"]["why"] == "Stays at 2: feedback says nothing of it itself."


def test_what_says_most_comes_first(store):
    retriever = wrap(store)
    vote(retriever, "c4", question=REFUND)
    vote(retriever, "c4", question=MONEY, times=5)
    evidence = explained(retriever)[2]["c4"]["evidence"]
    assert [row["question"] for row in evidence] == [MONEY, REFUND]


def test_pinned_injected_and_widened_chunks(store):
    lost, pinned, elsewhere = chunks(3, start=20)
    empty = wrap(store, [])
    for at in range(2):
        empty.invoke(REFUND, run(feedback_trace_id=f"t{at}"))
        store.rate(f"t{at}", 1)
    vote(wrap(store, [lost]), lost.id, times=3)
    for target in (pinned, "c5"):
        wrap(store).invoke(SERVER)
        store.pin(REFUND, target)
    fallback = ListRetriever(documents=[elsewhere])
    by_id = explained(wrap(store, fallback_retriever=fallback, k=9))[2]
    assert by_id["c21"]["why"] == (
        "A reviewer pinned it for this question; the base retriever did not return it."
    )
    assert by_id["c5"]["why"].startswith(
        "A reviewer pinned it for this question; the base retriever had it at 6"
    )
    assert by_id["c20"]["why"] == (
        f"Added at 3, since people liked it, most of all under {REFUND!r}; the base retriever "
        "did not return it."
    )
    assert by_id["c22"]["why"] == (
        "The fallback retriever found it, asked since such questions were often answered badly; "
        "feedback says nothing of it itself."
    )
    assert [vote["signal"] for vote in by_id["c21"]["evidence"][0]["signals"]] == ["pin"]


def test_the_classic_rule(store):
    retriever = wrap(store, policy=AverageRating())
    vote(retriever, "c4")
    row = explained(retriever)[2]["c4"]
    assert row["multiplier"] == pytest.approx(5 / 3)
    assert row["why"].startswith("Moved up from 5 to 1: feedback speaks for it")


class OwnScale:
    """A policy of one's own, whose belief is on another scale."""

    needs = "evidence"

    def score(self, candidates, view):
        count = len(candidates.base_rank)
        return Scores(-np.arange(count) * 1.0, np.full(count, 1.5), np.full(count, 0.25))


def test_a_policy_of_ones_own_is_shown_as_it_spoke(store):
    found, rows, _ = explained(wrap(store, policy=OwnScale()))
    assert [row["multiplier"] for row in rows] == [0.25] * 6
    assert {row["belief"] for row in rows} == {1.5}
    assert marks(found[0])["multiplier"] == 0.25
    assert rows[0]["why"] == "Stays at 1: feedback speaks against it."


def test_a_trace_that_was_recorded_without_a_retriever(store):
    store.record_trace("t", REFUND, chunks(1))
    (row,) = wrap(store).explain("t")
    assert (row["belief"], row["multiplier"]) == (0, 1)


def test_every_search_of_a_trace(store):
    retriever = wrap(store, chunks(2))
    retriever.invoke(REFUND, run(feedback_trace_id="t"))
    retriever.invoke(SERVER, run(feedback_trace_id="t", feedback_attempt=2))
    rows = retriever.explain("t")
    places = [(row["attempt"], row["chunk_id"]) for row in rows]
    assert places == [(1, "c0"), (1, "c1"), (2, "c0"), (2, "c1")]


async def test_a22_the_async_twin_says_the_same(store):
    retriever = wrap(store)
    trace_id = trace_id_of(retriever.invoke(REFUND))
    assert await retriever.aexplain(trace_id) == retriever.explain(trace_id)


async def test_an_unknown_trace(store):
    with pytest.raises(UnknownTraceError, match="There is no trace 'nobody'"):
        wrap(store).explain("nobody")
    with pytest.raises(UnknownTraceError, match="namespace 'default'"):
        await wrap(store).aexplain("nobody")


def test_another_namespaces_trace_is_unknown(store):
    trace_id = trace_id_of(wrap(store.scoped("other")).invoke(REFUND))
    with pytest.raises(UnknownTraceError):
        wrap(store).explain(trace_id)


def test_an_empty_result(store):
    retriever = wrap(store, [])
    retriever.invoke(REFUND, run(feedback_trace_id="t"))
    assert retriever.explain("t") == []


def test_a_broken_store_raises_here(tmp_path):
    path = tmp_path / "feedback.db"
    path.write_bytes(b"not a database" * 500)
    from langchain_feedback.store.feedback_store import FeedbackStore  # noqa: PLC0415

    retriever = wrap(FeedbackStore(f"sqlite:///{path}"))
    assert ids(retriever.invoke(REFUND)) == ["c0", "c1", "c2"]
    with pytest.raises(StoreError):
        retriever.explain("t")
