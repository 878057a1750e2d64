"""What the log says of similar questions, and a memory that outlives its embedder."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_feedback.errors import NotEnoughFeedbackError, StoreError
from langchain_feedback.ranking.kernels import CalibratedKernel
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.upkeep import calibrating
from tests.unit_tests.store.tables import Angles, column


def voted(store, question, chunk, *ratings):
    trace_id = f"{question}/{chunk}"
    store.record_trace(trace_id, question, [Document(f"Chunk {chunk}.", id=chunk)])
    for number, rating in enumerate(ratings):
        store.rate(trace_id, rating, actor=f"u{number}")


def rows(pairs):
    """The pairs as sorted (degrees between the questions, convictions in their order)."""
    degrees = np.degrees(np.arccos(pairs.similarity)).round(1)
    votes = [
        tuple(sorted(pair)) for pair in zip(*(says.round(2) for says in pairs[1:]), strict=True)
    ]
    return sorted(zip(degrees.tolist(), votes, strict=True))


def topics(store, chunks=40, questions=8, seed=0):
    """Chunks that are good for the questions of half a circle and bad for the others."""
    random = np.random.default_rng(seed)
    for chunk in range(chunks):
        border = random.uniform(0, 180)
        for angle in random.choice(180, questions, replace=False):
            good = (angle - border) % 180 < 90
            voted(store, f"Question about {angle}", f"c{chunk}", *([5, 5] if good else [1, 1]))


def test_pairs_are_questions_with_votes_on_one_chunk(url):
    store = FeedbackStore(url, embeddings=Angles(), half_life_days=None)
    voted(store, "About 0", "a", 5)
    voted(store, "About 10", "a", 1, 1)
    voted(store, "About 30", "a", 5, 5, 5)
    voted(store, "About 60", "b", 5)
    voted(store, "About 70", "b", 3)
    voted(store, "About 80", "c", 5, 1)
    pairs = store.calibration_pairs()
    # Conviction is (for - against) / (votes + 2); who says nothing makes no pair.
    assert rows(pairs) == [
        (10.0, (-0.5, 0.33)),
        (20.0, (-0.5, 0.6)),
        (30.0, (0.33, 0.6)),
    ]
    assert {array.dtype for array in pairs} == {np.dtype(np.float64)}


def test_pairs_age_to_the_newest_vote_and_not_to_the_clock(url, tmp_path):
    store = FeedbackStore(url, half_life_days=30)
    for question, chunk in (("About 0", "a"), ("About 10", "a")):
        vector = Angles().embed_query(question)
        store.record_trace(question, question, [Document("Text.", id=chunk)], vector=vector)
        store.rate(question, 5, event_id=question)
    store.export_jsonl(tmp_path / "export.jsonl")
    old, new = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 31, tzinfo=UTC)
    text = (tmp_path / "export.jsonl").read_text("utf-8")
    times = column(store, "signals", "received_at")
    for time, dated in zip(times, (old, new), strict=True):
        text = text.replace(time.isoformat(), dated.isoformat())
    (tmp_path / "export.jsonl").write_text(text, "utf-8")
    store.prune(datetime.now(UTC) + timedelta(days=1))

    other = FeedbackStore("sqlite://", embeddings=Angles(), half_life_days=30)
    other.import_jsonl(tmp_path / "export.jsonl")
    pairs = other.calibration_pairs()
    assert rows(pairs) == [(10.0, (0.2, 0.33))]  # half a vote: .5 / 2.5; a whole one: 1 / 3


def test_pairs_compare_no_vectors_of_two_embedders(url):
    first = FeedbackStore(url, embeddings=Angles("one"))
    voted(first, "About 0", "a", 5)
    voted(first, "About 10", "a", 5)
    second = FeedbackStore(url, embeddings=Angles("two"))
    voted(second, "About 20", "a", 1)
    assert rows(first.calibration_pairs()) == [(10.0, (0.33, 0.33))]
    assert rows(second.calibration_pairs()) == []
    assert second.embed_questions() == 2
    assert [degrees for degrees, _ in rows(second.calibration_pairs())] == [10.0, 10.0, 20.0]
    assert rows(first.calibration_pairs()) == []


def test_pairs_of_other_namespaces_stay_theirs(url):
    store = FeedbackStore(url, embeddings=Angles())
    voted(store.scoped("other"), "About 0", "a", 5)
    voted(store.scoped("other"), "About 10", "a", 5)
    assert len(store.calibration_pairs().similarity) == 0
    assert len(store.scoped("other").calibration_pairs().similarity) == 1


def test_a_popular_chunk_gives_some_pairs_and_the_same_ones_each_time(monkeypatch):
    monkeypatch.setattr(calibrating, "_OF_A_CHUNK", 20)
    store = FeedbackStore("sqlite://", embeddings=Angles())
    for angle in range(12):
        voted(store, f"About {angle}", "popular", 1 + 4 * (angle % 2))
        voted(store, f"About {angle}", f"few{angle // 3}", 5)
    pairs = store.calibration_pairs()
    assert len(pairs.similarity) == 20 + 4 * 3
    assert all(map(np.array_equal, pairs, store.calibration_pairs()))
    assert not all(map(np.array_equal, pairs, store.calibration_pairs(seed=1)))
    some = store.calibration_pairs(limit=10)
    assert len(some.similarity) == 10
    assert all(map(np.array_equal, some, store.calibration_pairs(limit=10)))
    assert set(rows(some)) <= set(rows(pairs))
    with pytest.raises(ValueError, match="limit must be at least 1"):
        store.calibration_pairs(limit=0)


@pytest.mark.parametrize("number", [2, 3, 20, 21, 400])
def test_pairs_are_drawn_without_repetition(number):
    low, high = calibrating._some_pairs(number, np.random.default_rng(0))
    assert (low < high).all()
    assert (low >= 0).all()
    assert (high < number).all()
    drawn = set(zip(low.tolist(), high.tolist(), strict=True))
    assert len(drawn) == len(low) == min(200, math.comb(number, 2))


def test_a_kernel_is_fitted_to_the_log(url):
    store = FeedbackStore(url, embeddings=Angles())
    topics(store)
    kernel = store.fit_kernel(minimum_events=100)
    assert isinstance(kernel, CalibratedKernel)
    assert kernel.embedder == store.embedder == "Angles/angles"
    near, far = kernel([math.cos(math.radians(2)), math.cos(math.radians(80))])
    assert near > 0.4
    assert far < 0.1


def test_too_little_feedback_is_told_with_numbers(url):
    store = FeedbackStore(url, embeddings=Angles())
    with pytest.raises(NotEnoughFeedbackError, match=r"500 votes .* there are 0"):
        store.fit_kernel()
    with pytest.raises(NotEnoughFeedbackError, match="embed_questions"):
        store.fit_kernel(minimum_events=0)
    for angle, rating in ((0, 5), (10, 1), (20, 5)):
        voted(store, f"About {angle}", "a", rating)
    with pytest.raises(NotEnoughFeedbackError, match=r"4 votes .* there are 3"):
        store.fit_kernel(minimum_events=4)
    with pytest.raises(NotEnoughFeedbackError, match=r"100 pairs .* there are 3"):
        store.fit_kernel(minimum_events=3)


async def test_a22_the_async_twins_do_the_same(url):
    store = FeedbackStore(url, embeddings=Angles())
    topics(store, chunks=4)
    assert await store.aembed_questions() == 0
    pairs = await store.acalibration_pairs(limit=50)
    assert len(pairs.similarity) == 50
    assert await store.afit_kernel(minimum_events=9) == store.fit_kernel(minimum_events=9)


# -- embed_questions


def test_another_embedder_keeps_the_memory(url):
    first = FeedbackStore(url, embeddings=Angles("one"))
    for angle in range(0, 90, 10):
        voted(first, f"About {angle}", "a", 5)
    first.record_trace("unrated", "About 5", [])

    embeddings = Angles("two", dimension=3)
    second = FeedbackStore(url, embeddings=embeddings)
    assert second.evidence_for("About 41").questions == ()
    embeddings.queries, embeddings.batches = 0, []
    assert second.embed_questions(batch_size=4) == 9
    # One call shows how long the vectors are, another one how documents are read.
    assert (embeddings.queries, embeddings.batches) == (1, [1, 4, 4, 1])
    assert [q.text for q in second.evidence_for("About 41", limit=1).questions] == ["About 40"]
    assert first.evidence_for("About 41").questions == ()
    assert second.embed_questions() == 0
    assert column(second, "questions", "embedder").count("Angles/two:3") == 9


def test_questions_that_were_imported_or_asked_without_embeddings_are_embedded(url):
    bare = FeedbackStore(url)
    voted(bare, "About 10", "a", 5)
    bare.pin("About 50", "a")
    store = FeedbackStore(url, embeddings=Angles())
    assert store.embed_questions() == 2
    assert [q.text for q in store.evidence_for("About 12", limit=1).questions] == ["About 10"]


def test_a_model_that_reads_queries_and_documents_differently_is_asked_for_queries(url):
    class TwoSided(Angles):
        def embed_documents(self, texts):
            return [self.embed_query(f"{180 - float(text.split()[-1])}") for text in texts]

    bare = FeedbackStore(url)
    for angle in (10, 20):
        voted(bare, f"About {angle}", "a", 5)
    store = FeedbackStore(url, embeddings=TwoSided())
    assert store.embed_questions() == 2
    found = store.evidence_for("About 11", min_similarity=0.9).questions
    assert [question.text for question in found] == ["About 10", "About 20"]
    assert found[0].similarity == pytest.approx(math.cos(math.radians(1)), abs=1e-6)


def test_embedding_needs_embeddings_and_questions(url):
    with pytest.raises(StoreError, match="has no embeddings"):
        FeedbackStore(url).embed_questions()
    embeddings = Angles()
    store = FeedbackStore(url, embeddings=embeddings)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        store.embed_questions(batch_size=0)
    assert store.embed_questions() == 0
    assert embeddings.queries == 0
