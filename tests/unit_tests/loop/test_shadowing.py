"""Where the ranker in the shadow would have put what people credited."""

from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.documents import Document

from langchain_feedback import FeedbackRetriever, trace_id_of
from langchain_feedback.loop.shadowing import BIAS, shadow_report
from langchain_feedback.store.rankers import RankerRecord, activate, add_ranker, digest_of
from langchain_feedback.store.records import TracedChunk
from langchain_feedback.store.transactions import writing
from langchain_feedback.traces import new_trace_id
from tests.fakes import ListRetriever
from tests.unit_tests.loop.experiments_kit import asked_at
from tests.unit_tests.loop.kit import said

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def rankers(store):
    """Two that may be watched, as the foreign keys want them."""
    with writing(store) as (connection, _):
        for name in ("old", "new"):
            add_ranker(connection, store.namespace, ranker(name))


def ranker(name, artifact="{}"):
    return RankerRecord(name, "linear", artifact, digest_of(artifact), "-", (), 30, NOW)


def ranked(store, places, *, shadow_id="new", at=NOW - DAY, **facts):
    """Record a pool; `places` gives (base, active, shadow) by chunk. None: it did not rank it."""
    trace_id = new_trace_id()
    chunks = [
        TracedChunk(
            Document(f"Text {one}.", id=one), final_rank=rank, base_rank=base,
            ranker_rank=active, shadow_rank=shadow,
        )
        for rank, (one, (base, active, shadow)) in enumerate(places.items())
    ]  # fmt: skip
    store.record_trace(trace_id, "How long?", chunks, shadow_id=shadow_id)
    store.update_trace(trace_id, **facts)
    asked_at(store, trace_id, at)
    return trace_id


def test_each_credited_chunk_is_looked_up_in_both_orders(store):
    first = ranked(store, {"x": (0, 3, 0), "y": (1, 0, 3)})
    said(store, first, "source_click", target="x")
    second = ranked(store, {"x": (0, 0, 1), "y": (1, 1, 0)})
    said(store, second, "rating", rating=5, target="x")
    found = shadow_report(store, now=NOW)
    assert (found.shadow_id, found.questions) == ("new", 2)
    assert found.active == pytest.approx((1 / 4 + 1) / 2)
    assert found.shadow == pytest.approx((1 + 1 / 2) / 2)
    assert (found.better, found.worse) == (1, 1)
    assert found.low < found.shadow - found.active < found.high


def test_it_says_that_it_is_biased_for_the_active_one(store):
    said(store, ranked(store, {"x": (0, 0, 1)}), "source_click", target="x")
    found = shadow_report(store, now=NOW)
    assert found.why.endswith(BIAS)
    assert "favors the active order" in BIAS
    assert "0.500 in the shadow, 1.000 as ordered" in found.why


def test_without_an_active_ranker_the_base_was_the_order(store):
    said(store, ranked(store, {"x": (1, None, 0)}), "source_click", target="x")
    found = shadow_report(store, now=NOW)
    assert (found.active, found.shadow) == (0.5, 1.0)


def test_of_several_credited_chunks_the_first_in_each_order_counts(store):
    trace_id = ranked(store, {"x": (0, 0, 2), "y": (1, 1, 1), "z": (2, 2, 0)})
    for one in ("x", "y"):
        said(store, trace_id, "copy", target=one)
    found = shadow_report(store, now=NOW)
    assert (found.active, found.shadow) == (1.0, 0.5)


def test_a_good_answer_credits_what_it_provably_quotes(store):
    good = ranked(store, {"x": (0, 0, 1), "y": (1, 1, 0)}, cited=["y"])
    said(store, good, "rating", rating=5)
    found = shadow_report(store, now=NOW)
    assert (found.questions, found.active, found.shadow) == (1, 0.5, 1.0)


def test_what_says_nothing_of_a_chunk_does_not_count(store):
    places = {"x": (0, 0, 1), "y": (1, 1, 0)}
    bad = ranked(store, places, cited=["y"])
    said(store, bad, "rating", rating=1)
    torn = ranked(store, places, cited=["y"])
    said(store, torn, "rating", rating=5)
    said(store, torn, "thumbs_down", actor="another")
    said(store, ranked(store, places), "rating", rating=1, target="x")
    said(store, ranked(store, places), "rating", rating=5)
    ranked(store, places)
    unranked = ranked(store, {"x": (0, 0, None), "y": (1, 1, 0)})
    said(store, unranked, "source_click", target="x")
    found = shadow_report(store, now=NOW)
    assert found.questions == 0
    assert found.why.startswith("No question with a credited chunk")


def test_the_one_watched_last_counts_unless_another_one_is_named(store):
    for shadow_id, days, place in (("old", 5, 3), ("new", 1, 0)):
        at = NOW - days * DAY
        trace_id = ranked(store, {"x": (1, None, place)}, shadow_id=shadow_id, at=at)
        said(store, trace_id, "source_click", target="x")
    said(store, ranked(store, {"x": (1, None, 0)}, shadow_id=None), "source_click", target="x")
    assert shadow_report(store, now=NOW).shadow == 1
    assert shadow_report(store, shadow_id="old", now=NOW).shadow == 0.25
    assert shadow_report(store, now=NOW - 3 * DAY).shadow_id == "old"
    assert shadow_report(store, days=0.5, now=NOW).shadow_id is None
    assert shadow_report(store.scoped("other"), now=NOW).questions == 0
    with pytest.raises(ValueError, match="days must be above 0"):
        shadow_report(store, days=0)


def test_a_real_retriever_records_what_the_report_reads(store):
    from langchain_feedback.ranking.features import WordWeights  # noqa: PLC0415
    from langchain_feedback.ranking.linear import LinearRanker, TrainingGroup  # noqa: PLC0415

    pool = [
        Document("Keys rotate.", id="k", metadata={"source": "k.md"}),
        Document("Refunds take days.", id="r", metadata={"source": "r.md"}),
    ]
    groups = [TrainingGroup("How long do refunds take?", pool, [0, 1], frozenset({1}))] * 30
    words = WordWeights.of(one.page_content for one in pool)
    artifact = LinearRanker.fit(groups, words=words).to_json()
    with writing(store) as (connection, _):
        add_ranker(connection, store.namespace, ranker("learned", artifact))
        activate(
            connection, store.namespace, "learned", role="shadow", action="shadow", actor=None,
            reason={}, at=NOW,
        )  # fmt: skip
    base = ListRetriever(documents=pool)
    found = FeedbackRetriever(base_retriever=base, store=store).invoke(
        "When do refunds take place?"
    )
    assert [one.id for one in found] == ["k", "r"]
    store.signal(trace_id_of(found), "source_click", target="r")
    told = shadow_report(store)
    assert (told.shadow_id, told.questions) == ("learned", 1)
    assert (told.active, told.shadow) == (0.5, 1.0)
