"""Questions put together by what was found for them."""

from datetime import UTC, datetime, timedelta
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.loop.clusters import cluster_asks, failure_clusters
from langchain_feedback.store.asking import Ask, AskedChunk
from tests.shared import shared_data, shared_rows
from tests.unit_tests.loop.kit import asked, chunk, said

NOW = datetime(2026, 3, 9, 9, tzinfo=UTC)


def found(chunk_id: str, rank: int) -> AskedChunk:
    return AskedChunk(
        chunk_id=chunk_id, cell_id=chunk_id, content_hash="", attempt=1, base_rank=rank,
        final_rank=rank, returned=True, in_prompt=True, cited=None, grade=None, origin="base",
        source=f"{chunk_id[0]}.md",
    )  # fmt: skip


def ask(n: int, question_id: int, chunk_ids, question: str | None = None) -> Ask:
    chunks = tuple(found(chunk_id, rank) for rank, chunk_id in enumerate(chunk_ids))
    at = NOW + timedelta(seconds=n)
    return Ask(
        f"t{n:05}", question_id, question or f"Question {question_id}?", "ann", None, at, "",
        None, None, None, None, chunks, (),
    )  # fmt: skip


def test_what_shares_three_chunks_in_ten_is_together():
    asks = [
        ask(0, 1, ["a1", "a2", "a3"]),
        ask(1, 1, ["a1", "a2", "a3"]),
        ask(2, 2, ["a1", "a2", "b3"]),  # 2 of 4
        ask(3, 3, ["a1", "b2", "b4"]),  # 1 of 5
    ]
    one, other = cluster_asks(asks)
    assert (one.question_ids, one.asks) == ((1, 2), 3)
    assert (one.name, one.sources) == ("a.md", ("a.md", "b.md"))
    assert one.chunk_ids == ("a1", "a2", "a3", "b3")
    assert one.trace_ids == ("t00002", "t00001", "t00000")
    assert other.question_ids == (3,)


def test_only_the_ten_first_of_the_newest_search_count():
    many = [f"c{n}" for n in range(20)]
    clusters = cluster_asks([ask(0, 1, many), ask(1, 1, many[:10]), ask(2, 2, many[10:])])
    assert len(clusters) == 2


def test_questions_that_found_nothing_are_compared_by_their_words():
    asks = [
        ask(0, 1, [], "Is there a parental leave?"),
        ask(1, 2, [], "How long is parental leave?"),
        ask(2, 3, [], "Where do I park my bike?"),
        ask(3, 4, ["leave"], "How long is parental leave in weeks?"),
    ]
    assert sorted(cluster.question_ids for cluster in cluster_asks(asks)) == [(1, 2), (3,), (4,)]


def test_the_same_name_is_numbered():
    asks = [ask(0, 1, ["a1"]), ask(1, 2, ["a2"])]
    assert [cluster.name for cluster in cluster_asks(asks)] == ["a.md", "a.md (2)"]


@pytest.mark.parametrize("overlap", [0, 1.1, float("nan")])
def test_the_overlap_is_a_share(overlap):
    with pytest.raises(ValueError, match="overlap"):
        cluster_asks([], overlap=overlap)


@given(
    st.lists(st.tuples(st.integers(1, 8), st.sets(st.sampled_from("abcdefgh"))), max_size=30),
    st.randoms(use_true_random=False),
)
def test_each_question_is_in_one_cluster_whatever_the_order(drawn, chance):
    asks = [ask(n, key, sorted(ids)) for n, (key, ids) in enumerate(drawn)]
    clusters = cluster_asks(asks)
    ids = [key for cluster in clusters for key in cluster.question_ids]
    assert sorted(ids) == sorted({key for key, _ in drawn})
    traces = [trace for cluster in clusters for trace in cluster.trace_ids]
    assert sorted(traces) == sorted(one.trace_id for one in asks)
    sizes = [cluster.asks for cluster in clusters]
    assert sizes == sorted(sizes, reverse=True)
    chance.shuffle(asks)
    assert cluster_asks(asks) == clusters


def test_clusters_of_failures_are_named_by_source_and_heading(store):
    at = NOW - timedelta(days=1)
    refunds = chunk("r", source="faq.md", heading="Refunds")
    cards = chunk("c", source="faq.md", title="Cards")
    for n, question in enumerate(("How long?", "How much?", "How long?")):
        trace_id = asked(store, question, [refunds, cards], at=at + timedelta(minutes=n))
        if n < 2:
            said(store, trace_id, "thumbs_down")
    asked(store, "Fine?", [refunds, cards], at=at)
    old = asked(store, "Old?", [refunds], at=NOW - timedelta(days=40))
    said(store, old, "thumbs_down")
    [cluster] = failure_clusters(store, now=NOW)
    assert cluster.name == "faq.md > Refunds"  # as common as the other, and ranked above it
    assert (cluster.questions, cluster.asks, cluster.failures) == (
        ("How long?", "How much?"),
        3,
        2,
    )
    assert failure_clusters(store.scoped("other"), now=NOW) == []


def test_half_of_the_ten_largest_clusters_are_of_one_page():
    """400 questions of FeedbackQA, by MiniLM's first ten chunks: measured .58 over 20 draws."""
    folder = shared_data("feedbackqa_us")
    vectors = np.load(folder / "embeddings.npz")
    scores = vectors["queries"].astype(np.float32) @ vectors["corpus"].astype(np.float32).T
    top = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    corpus = {row["_id"]: row for row in shared_rows("feedbackqa_us/corpus.jsonl")}
    lines = [line.split("\t") for line in (folder / "qrels.tsv").read_text().splitlines()[1:]]
    gold = {line[0]: corpus[line[1]]["metadata"]["url"] for line in lines}
    pages = [gold[row["_id"]] for row in shared_rows("feedbackqa_us/queries.jsonl")]
    purity = []
    for seed in range(3):
        drawn = Random(seed).sample(range(len(pages)), 400)
        clusters = cluster_asks([ask(n, n, map(str, top[n])) for n in drawn])[:10]
        of = [[pages[key] for key in cluster.question_ids] for cluster in clusters]
        purity.append(sum(max(map(one.count, one)) for one in of) / sum(map(len, of)))
    assert 0.5 < sum(purity) / 3 < 0.7
