"""A learned ranker orders the pool; feedback acts on its order."""

import logging
from dataclasses import replace
from datetime import UTC, datetime
from threading import Thread

import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_feedback import FeedbackRetriever, FeedbackStore, trace_id_of
from langchain_feedback.ranking.linear import LinearRanker, TrainingGroup
from langchain_feedback.ranking.policies import AverageRating
from langchain_feedback.store.rankers import RankerRecord, activate, add_ranker, digest_of
from langchain_feedback.store.transactions import reading, writing
from tests.fakes import ListRetriever
from tests.unit_tests.retrievers.feedback_kit import REFUND, ids, marks, run, vote, wrap


class Reversed:
    """Holds the base's last to be the best."""

    def __init__(self):
        self.asked = []

    def score(self, question, candidates):
        self.asked.append((question, [document.id for document in candidates.documents]))
        return candidates.base_rank.astype(float)


def trained(right="c5"):
    """A linear ranker that learned to look for the word of one chunk."""
    pool = [Document(f"Text {at}.", id=f"c{at}") for at in range(6)]
    word = right[1:]
    pool[int(word)] = Document(f"Refund text {word}.", id=right)
    groups = [TrainingGroup(REFUND, pool, range(6), frozenset({int(word)}))] * 30
    return LinearRanker.fit(groups)


def keep(store, artifact, *, kind="linear", ranker_id="r1", **changed):
    made = RankerRecord(
        ranker_id, kind, artifact, digest_of(artifact), "labels", (), 30, datetime.now(UTC)
    )
    with writing(store) as (connection, _):
        add_ranker(connection, store.namespace, replace(made, **changed))


def make_active(store, ranker_id="r1", **more):
    given = {"action": "promote", "at": datetime.now(UTC)} | more
    with writing(store) as (connection, _):
        activate(connection, store.namespace, ranker_id, **given)


def at_once(retriever):
    """Let it ask the store with every question."""
    retriever.rankers.poll_s = 0.0
    return retriever


def refunds():
    """A pool whose last chunk has the question's words."""
    found = [Document(f"Text {at}.", id=f"c{at}") for at in range(5)]
    return [*found, Document("A refund takes long.", id="c5")]


# -- a ranker of one's own


def test_a_ranker_orders_the_pool_and_the_trace_says_so(store):
    retriever = wrap(store, ranker=Reversed())
    found = retriever.invoke(REFUND, run(user_id="ann"))
    assert ids(found) == ["c5", "c4", "c3"]
    assert [marks(one)["base_rank"] for one in found] == [5, 4, 3]
    assert [marks(one)["ranker_rank"] for one in found] == [0, 1, 2]
    record = store.trace(trace_id_of(found))
    assert [(one.chunk_id, one.ranker_rank) for one in record.chunks] == [
        (f"c{5 - at}", at) for at in range(6)
    ]
    # It is nobody's but this retriever's, so that it has no id.
    assert record.ranker_id is None
    [first, *_] = retriever.explain(trace_id_of(found))
    assert first["ranker_rank"] == 0
    assert first["why"] == (
        "Moved up from 6 to 1: the learned ranker had it at 1, and feedback says nothing of it "
        "itself."
    )


def test_feedback_acts_on_the_rankers_order(store):
    retriever = wrap(store, ranker=Reversed())
    vote(retriever, "c3", times=3)
    # From its place in the ranker's order, the third, to the first; not from the base's.
    assert ids(retriever.invoke(REFUND)) == ["c3", "c5", "c4"]
    plain = wrap(store, ranker=None)
    assert ids(plain.invoke(REFUND)) != ["c3", "c5", "c4"]


def test_a_pin_comes_first_whatever_the_ranker_says(store):
    retriever = wrap(store, ranker=Reversed())
    retriever.invoke(REFUND)
    store.pin(REFUND, "c0", actor="lead")
    assert ids(retriever.invoke(REFUND)) == ["c0", "c5", "c4"]


def test_it_sees_the_traces_own_question_and_the_whole_pool(store):
    ranker = Reversed()
    retriever = wrap(store, ranker=ranker)
    asked = {"metadata": {"feedback_trace_id": "t1"}}
    retriever.invoke(REFUND, asked)
    retriever.invoke("refund duration", {"metadata": asked["metadata"] | {"feedback_attempt": 2}})
    assert ranker.asked == [(REFUND, [f"c{at}" for at in range(6)])] * 2


async def test_async_is_the_same(store):
    retriever = wrap(store, ranker=Reversed())
    assert ids(await retriever.ainvoke(REFUND)) == ids(retriever.invoke(REFUND))


def test_equal_scores_keep_the_bases_order(store):
    class Level:
        def score(self, question, candidates):
            return np.zeros(len(candidates))

    assert ids(wrap(store, ranker=Level()).invoke(REFUND)) == ["c0", "c1", "c2"]


def test_every_policy_gets_the_new_order(store):
    retriever = wrap(store, ranker=Reversed(), policy=AverageRating())
    assert ids(retriever.invoke(REFUND)) == ["c5", "c4", "c3"]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda *_: 1 / 0, id="raises"),
        pytest.param(lambda *_: [1.0], id="one number"),
        pytest.param(lambda _, pool: [float("nan")] * len(pool), id="no number"),
        pytest.param(lambda *_: None, id="nothing"),
    ],
)
def test_a_ranker_that_fails_costs_its_order_and_is_named_once(store, caplog, broken):
    class Broken:
        score = staticmethod(broken)

    retriever = wrap(store, ranker=Broken())
    with caplog.at_level(logging.WARNING):
        assert ids(retriever.invoke(REFUND)) == ["c0", "c1", "c2"]
        retriever.invoke(REFUND)
    [said] = [one for one in caplog.messages if "ranker" in one]
    assert "Broken failed" in said
    assert "ranker_rank" not in marks(retriever.invoke(REFUND)[0])


class PairScorer:
    def score(self, text_pairs):
        return [0.0 for _ in text_pairs]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param("newest", id="a word"),
        pytest.param(3, id="a number"),
        pytest.param(LinearRanker, id="a class"),
        pytest.param(PairScorer(), id="a cross-encoder"),
    ],
)
def test_what_is_no_ranker_is_refused(store, wrong):
    with pytest.raises(ValueError, match=r'ranker is "active", None, or has `score'):
        wrap(store, ranker=wrong)


# -- the one that was promoted


def test_nothing_happens_until_somebody_promotes_and_then_it_is_followed(store):
    retriever = at_once(wrap(store, refunds()))
    assert ids(retriever.invoke(REFUND)) == ["c0", "c1", "c2"]
    keep(store, trained().to_json())
    assert ids(retriever.invoke(REFUND)) == ["c0", "c1", "c2"]
    make_active(store)
    found = retriever.invoke(REFUND)
    assert ids(found)[0] == "c5"
    assert store.trace(trace_id_of(found)).ranker_id == "r1"
    make_active(store, None, action="rollback")
    found = retriever.invoke(REFUND)
    assert ids(found) == ["c0", "c1", "c2"]
    assert store.trace(trace_id_of(found)).ranker_id is None


def test_the_store_is_asked_at_most_every_30_seconds(store, monkeypatch):
    retriever = wrap(store, refunds())
    now = [1000.0]
    monkeypatch.setattr("langchain_feedback.retrievers._ordering.time.monotonic", lambda: now[0])
    retriever.invoke(REFUND)
    keep(store, trained().to_json())
    make_active(store)
    now[0] += 29.9
    assert ids(retriever.invoke(REFUND))[0] == "c0"
    now[0] += 0.1
    assert ids(retriever.invoke(REFUND))[0] == "c5"


def test_it_is_the_namespaces_own(store, tmp_path):
    other = store.scoped("other")
    keep(other, trained().to_json())
    make_active(other)
    assert ids(at_once(wrap(store, refunds())).invoke(REFUND))[0] == "c0"
    assert ids(at_once(wrap(other, refunds())).invoke(REFUND))[0] == "c5"


def test_another_store_object_follows(store, tmp_path):
    with FeedbackStore(f"sqlite:///{tmp_path}/feedback.db") as other:
        retriever = at_once(wrap(other, refunds()))
        retriever.invoke(REFUND)
        keep(store, trained().to_json())
        make_active(store)
        assert ids(retriever.invoke(REFUND))[0] == "c5"


@pytest.mark.parametrize(
    ("artifact", "changed", "said"),
    [
        pytest.param("{}", {}, "no ranker that this release reads", id="empty"),
        pytest.param("{", {}, "no ranker that this release reads", id="cut"),
        pytest.param(None, {"sha256": "0" * 64}, "is damaged", id="altered"),
        pytest.param(None, {"kind": "lightgbm"}, "pass `load_ranker=`", id="another kind"),
    ],
)
def test_a_corrupt_artifact_keeps_the_old_ranker_check5(store, caplog, artifact, changed, said):
    retriever = at_once(wrap(store, refunds()))
    keep(store, trained().to_json())
    make_active(store)
    assert ids(retriever.invoke(REFUND))[0] == "c5"
    keep(store, artifact or trained().to_json(), ranker_id="r2", **changed)
    make_active(store, "r2")
    with caplog.at_level(logging.WARNING):
        found = retriever.invoke(REFUND)
        retriever.invoke(REFUND)
    assert ids(found)[0] == "c5"
    assert store.trace(trace_id_of(found)).ranker_id == "r1"
    [line] = [one for one in caplog.messages if "r2" in one]
    assert said in line
    # The next good one is followed.
    keep(store, trained("c2").to_json(), ranker_id="r3")
    make_active(store, "r3")
    assert store.trace(trace_id_of(retriever.invoke(REFUND))).ranker_id == "r3"


def test_features_of_ones_own_are_given_by_name(store, caplog):
    def last(question, documents):
        return [float(document.id == "c3") for document in documents]

    pool = [Document(f"Text {at}.", id=f"c{at}") for at in range(6)]
    group = TrainingGroup(REFUND, pool, range(6), frozenset({3}))
    ranker = LinearRanker.fit([group] * 30, extra_features={"last": last})
    keep(store, ranker.to_json())
    make_active(store)
    assert ids(at_once(wrap(store, ranker_features={"last": last})).invoke(REFUND))[0] == "c3"
    with caplog.at_level(logging.WARNING):
        assert ids(at_once(wrap(store)).invoke(REFUND))[0] == "c0"
    assert any("['last']" in message for message in caplog.messages)


def test_an_estimator_of_ones_own_brings_its_loader(store):
    keep(store, '{"way": "back"}', kind="mine")
    make_active(store)
    seen = []

    def load(record):
        seen.append((record.kind, record.artifact))
        return Reversed()

    assert ids(at_once(wrap(store, load_ranker=load)).invoke(REFUND)) == ["c5", "c4", "c3"]
    assert seen == [("mine", '{"way": "back"}')]


def test_one_that_is_watched_changes_nothing_and_is_recorded(store):
    keep(store, trained().to_json())
    make_active(store, role="shadow", action="shadow")
    retriever = at_once(wrap(store, refunds()))
    found = retriever.invoke(REFUND)
    assert ids(found) == ["c0", "c1", "c2"]
    record = store.trace(trace_id_of(found))
    assert (record.ranker_id, record.shadow_id) == (None, "r1")
    ranks = {one.chunk_id: (one.ranker_rank, one.shadow_rank) for one in record.chunks}
    assert ranks["c5"] == (None, 0)
    assert sorted(shadow for _, shadow in ranks.values()) == list(range(6))


def test_a_store_that_fails_keeps_the_last_ranker(store, monkeypatch):
    retriever = at_once(wrap(store, refunds()))
    keep(store, trained().to_json())
    make_active(store)
    retriever.invoke(REFUND)

    def fails(*_, **__):
        raise OSError

    monkeypatch.setattr("langchain_feedback.retrievers._ordering.newest_activation", fails)
    assert ids(retriever.invoke(REFUND))[0] == "c5"


def test_threads_share_one_retriever(store):
    retriever = at_once(wrap(store, refunds()))
    keep(store, trained().to_json())
    make_active(store)
    found = []
    threads = [
        Thread(target=lambda: found.append(ids(retriever.invoke(REFUND))[0])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["c5"] * 8


def test_what_cannot_be_loaded_is_tried_again_at_the_next_look(store):
    keep(store, trained().to_json(), kind="mine")
    make_active(store)
    tried = []

    def load(record):
        tried.append(record.ranker_id)
        if len(tried) < 3:
            raise OSError(5, "the share is away")
        return Reversed()

    retriever = at_once(wrap(store, load_ranker=load))
    found = [ids(retriever.invoke(REFUND))[0] for _ in range(4)]
    assert (found, len(tried)) == (["c0", "c0", "c5", "c5"], 3)


def test_a_loader_may_leave_the_packages_own_kinds_to_it(store):
    keep(store, trained().to_json())
    make_active(store)
    retriever = at_once(wrap(store, refunds(), load_ranker=lambda record: None))
    assert ids(retriever.invoke(REFUND))[0] == "c5"


def test_what_was_rolled_back_never_goes_on(store, caplog):
    keep(store, trained().to_json(), ranker_id="old", kind="gone")
    keep(store, trained().to_json(), ranker_id="bad")
    make_active(store, "bad")
    retriever = at_once(wrap(store, refunds()))
    assert ids(retriever.invoke(REFUND))[0] == "c5"
    make_active(store, "old", action="rollback")  # and that one cannot be loaded
    with caplog.at_level(logging.WARNING):
        found = retriever.invoke(REFUND)
    assert ids(found)[0] == "c0"
    assert store.trace(trace_id_of(found)).ranker_id is None
    assert any("old" in message for message in caplog.messages)


@pytest.mark.parametrize("first", ["", "  "])
def test_a_blank_question_does_not_use_up_the_look(store, first):
    keep(store, trained().to_json())
    make_active(store)
    retriever = wrap(store, refunds())
    retriever.invoke(first)
    assert ids(retriever.invoke(REFUND))[0] == "c5"


def test_a_store_that_failed_at_the_first_question_is_asked_at_the_next_one(store, monkeypatch):
    keep(store, trained().to_json())
    make_active(store)
    retriever = wrap(store, refunds())
    with monkeypatch.context() as patched:
        patched.setattr(FeedbackStore, "evidence_for", lambda *_, **__: 1 / 0)
        retriever.invoke(REFUND)
    assert ids(retriever.invoke(REFUND))[0] == "c5"


def test_all_of_a_first_batch_get_the_rankers_order(store):
    keep(store, trained().to_json())
    make_active(store)
    retriever = wrap(store, refunds())
    found = retriever.batch([REFUND] * 8, {"max_concurrency": 8})
    assert [ids(one)[0] for one in found] == ["c5"] * 8


def test_a_copy_goes_by_its_own_store_and_ranker(store):
    keep(store, trained().to_json())
    make_active(store)
    mine = at_once(wrap(store, refunds()))
    assert ids(mine.invoke(REFUND))[0] == "c5"
    other = mine.model_copy(update={"store": store.scoped("other")})
    found = other.invoke(REFUND)
    assert ids(found)[0] == "c0"
    assert other.store.trace(trace_id_of(found)).ranker_id is None
    assert ids(mine.model_copy(update={"ranker": None}).invoke(REFUND))[0] == "c0"
    assert ids(mine.model_copy(update={"ranker": Reversed()}).invoke(REFUND))[0] == "c5"
    mine.ranker = None
    assert ids(mine.invoke(REFUND))[0] == "c0"


def test_a_trace_names_no_ranker_that_gave_no_order(store):
    keep(store, "{}", kind="mine")
    make_active(store)

    class Broken:
        def score(self, question, candidates):
            raise ValueError

    found = wrap(store, load_ranker=lambda record: Broken()).invoke(REFUND)
    assert store.trace(trace_id_of(found)).ranker_id is None


def test_the_active_one_is_not_watched_too(store):
    keep(store, trained().to_json())
    make_active(store)
    make_active(store, role="shadow", action="shadow")
    found = wrap(store, refunds()).invoke(REFUND)
    record = store.trace(trace_id_of(found))
    assert (record.ranker_id, record.shadow_id) == ("r1", None)


# -- traces that another retriever keeps


def test_a_run_that_is_not_to_be_recorded_is_ranked_and_leaves_no_trace(store):
    retriever = wrap(store, ranker=Reversed())
    quiet = run(user_id="ann", feedback_trace_id="t1", feedback_unrecorded=True)
    found = retriever.invoke(REFUND, quiet)
    assert ids(found) == ["c5", "c4", "c3"]
    assert store.trace("t1") is None
    assert store.trace(trace_id_of(found)) is None
    # The id is free for who keeps the trace.
    kept = retriever.invoke(REFUND, run(user_id="ann", feedback_trace_id="t1"))
    assert trace_id_of(kept) == "t1"
    with reading(store) as connection:
        assert connection.exec_driver_sql("select count(*) from lcf_traces").scalar() == 1


def test_a_base_below_a_feedback_retriever_is_recorded_as_ever(store):
    inner = FeedbackRetriever(base_retriever=ListRetriever(documents=refunds()), store=store)
    outer = FeedbackRetriever(base_retriever=inner, store=store, k=3)
    outer.invoke(REFUND)
    with reading(store) as connection:
        assert connection.exec_driver_sql("select count(*) from lcf_traces").scalar() == 2
