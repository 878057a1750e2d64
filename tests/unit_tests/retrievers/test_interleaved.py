"""Two retrievers in one list: what is shown, what is recorded, and what it never costs."""

import asyncio
import logging
from datetime import timedelta

import numpy as np
import pytest
from blockbuster import blockbuster_ctx
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from langchain_feedback import FeedbackRetriever, new_trace_id, trace_id_of
from langchain_feedback.documents import chunk_key
from langchain_feedback.errors import StoreError, UnknownTraceError
from langchain_feedback.graph import create_reliable_rag
from langchain_feedback.loop.experiments import start_experiment, stop_experiment
from langchain_feedback.retrievers.interleaved import InterleavedRetriever
from langchain_feedback.store.experiments import read_members
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.transactions import reading
from langchain_feedback.traces import UNRECORDED_KEY, Retrieved
from tests.fakes import ListRetriever
from tests.unit_tests.retrievers.feedback_kit import (
    MONEY,
    REFUND,
    AngleEmbeddings,
    chunks,
    ids,
    marks,
    run,
    vote,
    wrap,
)


def lists(a=None, b=None):
    """Two bases over the same six chunks: as they are, and the other way round."""
    found = chunks()
    return (
        ListRetriever(documents=found if a is None else a),
        ListRetriever(documents=found[::-1] if b is None else b),
    )


def mix(store, a=None, b=None, **settings):
    bases = lists()
    a, b = bases[0] if a is None else a, bases[1] if b is None else b
    return InterleavedRetriever(a=a, b=b, store=store, **{"poll_s": 0} | settings)


def shown(found):
    return [(one.id, marks(one)["team"]) for one in found]


def traces_in(store):
    with reading(store) as connection:
        return connection.exec_driver_sql("select trace_id from lcf_traces").scalars().all()


# -- what is shown


async def test_check4_the_same_trace_gives_the_same_list_sync_and_async(tmp_path):
    drawn = {}
    for number in range(12):
        config = run(feedback_trace_id=f"trace-{number}")
        seen = []
        for way in ("invoke", "ainvoke", "batch", "abatch", "stream", "astream"):
            # A store each: a trace id is good for one question.
            path = f"sqlite:///{tmp_path}/{way}-{number}.db"
            with FeedbackStore(path, timeout_s=20) as store:
                retriever = mix(store)
                if way == "invoke":
                    found = retriever.invoke(REFUND, config)
                elif way == "ainvoke":
                    found = await retriever.ainvoke(REFUND, config)
                elif way == "batch":
                    [found] = retriever.batch([REFUND], config)
                elif way == "abatch":
                    [found] = await retriever.abatch([REFUND], config)
                elif way == "stream":
                    [found] = list(retriever.stream(REFUND, config))
                else:
                    [found] = [part async for part in retriever.astream(REFUND, config)]
                seen.append((shown(found), trace_id_of(found)))
        assert all(one == seen[0] for one in seen)
        drawn[number] = seen[0][0]
    # And another trace another one.
    assert len({tuple(one) for one in drawn.values()}) > 1


def test_both_have_their_say_and_the_team_stands_in_the_documents(store):
    found = mix(store).invoke(REFUND)
    assert len(found) == 4
    assert {marks(one)["team"] for one in found} == {"a", "b"}
    assert {one.id for one in found if marks(one)["team"] == "a"} == {"c0", "c1"}
    assert {one.id for one in found if marks(one)["team"] == "b"} == {"c4", "c5"}
    assert isinstance(found, Retrieved)


def test_what_both_offer_at_once_is_neithers(store):
    found = chunks()
    retriever = mix(store, *lists(found, [found[0], *found[:0:-1]]), k=3)
    first, *rest = retriever.invoke(REFUND)
    assert (first.id, marks(first)["team"]) == ("c0", "both")
    assert {marks(one)["team"] for one in rest} == {"a", "b"}


def test_a_chunk_under_another_id_in_the_other_index_is_the_same_chunk(store):
    renamed = [one.model_copy(update={"id": f"other-{one.id}"}) for one in chunks()]
    found = mix(store, *lists(b=renamed)).invoke(REFUND)
    assert shown(found) == [(f"c{at}", "both") for at in range(4)]


def test_a_chunk_that_was_moved_is_the_same_chunk(store, caplog):
    moved = [one.model_copy(update={"metadata": {"source": "new.md"}}) for one in chunks()]
    found = mix(store, *lists(b=moved)).invoke(REFUND)
    assert shown(found) == [(f"c{at}", "both") for at in range(4)]
    assert not caplog.records


@pytest.mark.parametrize("id_field", [None, "number"])
def test_one_id_for_two_texts_is_two_chunks_and_said_once(store, caplog, id_field):
    def index(name):
        # As an index made anew that counts its chunks from 0.
        return [Document(f"{name} {at}.", id=f"{at}", metadata={"number": at}) for at in range(4)]

    retriever = mix(store, *lists(index("Old"), index("New")), id_field=id_field)
    for _ in range(2):
        found = retriever.invoke(REFUND, run(user_id="ann"))
        teams = {one.page_content: marks(one)["team"] for one in found}
        assert teams == {"Old 0.": "a", "Old 1.": "a", "New 0.": "b", "New 1.": "b"}
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == 1
    assert "the id '0' to different texts" in said[0]
    # Each has its key wherever it is named.
    record = store.trace(trace_id_of(found))
    keys = [marks(one)["chunk_id"] for one in found]
    assert [chunk_key(one, id_field) for one in found] == keys
    assert [one.chunk_id for one in record.chunks if one.returned] == keys
    assert len(record.chunks) == 8
    new = next(one for one in found if one.page_content == "New 0.")
    store.signal(trace_id_of(found), "source_click", target=new)
    assert marks(new)["chunk_id"].startswith("sha256:")


def test_an_index_that_counts_from_another_number_holds_the_same_chunks(store, caplog):
    shifted = [one.model_copy(update={"id": f"c{at + 1}"}) for at, one in enumerate(chunks())]
    found = mix(store, *lists(b=shifted)).invoke(REFUND)
    assert shown(found) == [(f"c{at}", "both") for at in range(4)]
    assert len(caplog.records) == 1


def test_copies_of_a_chunk_are_shown_once(store):
    first, second, *_ = chunks()
    found = mix(store, *lists([first, first, second], [second, second, first])).invoke(REFUND)
    assert sorted(ids(found)) == ["c0", "c1"]


def test_stored_documents_stay_as_they_are(store):
    a, b = lists()
    before = [one.model_copy(deep=True) for one in a.documents]
    found = mix(store, a, b).invoke(REFUND)
    found[0].metadata["feedback"]["team"] = "changed"
    assert a.documents == before


def test_k_and_other_options_go_to_both(store):
    asked = []

    def search(name):
        def found(query, k=4, filter=None):  # noqa: A002
            asked.append((name, query, k, filter))
            return chunks()[:k]

        return RunnableLambda(found)

    retriever = mix(store, search("a"), search("b"), k=2)
    assert len(retriever.invoke(REFUND)) == 2
    assert len(retriever.invoke(REFUND, k=5, filter="x")) == 5
    calls = [(name, REFUND, *given) for given in ((2, None), (5, "x")) for name in "ab"]
    assert asked == calls
    with pytest.raises(ValueError, match="k must be at least 1, not 0"):
        retriever.invoke(REFUND, k=0)


def test_both_get_the_runs_metadata_and_the_name_of_the_trace(store):
    a, b = lists()
    found = mix(store, a, b).invoke(REFUND, run(user_id="ann", tenant="t1") | {"tags": ["x"]})
    for base in (a, b):
        [(_, k, metadata, tags)] = base.queries
        assert k == 4
        assert metadata["tenant"] == "t1"
        assert metadata["feedback_searched_for"] == trace_id_of(found)
        assert "x" in tags


# -- what is recorded


def test_one_trace_holds_what_both_returned_with_the_teams_of_what_was_shown(store):
    found = mix(store, k=2).invoke(REFUND, run(user_id="ann", session_id="s", source="eval"))
    record = store.trace(trace_id_of(found))
    assert (record.question, record.actor, record.session_id) == (REFUND, "ann", "s")
    assert (record.traffic, record.experiment) == ("eval", None)
    told = [(one.chunk_id, one.team) for one in record.chunks if one.returned]
    assert told == shown(found)
    assert all(one.team is None for one in record.chunks if not one.returned)
    # Of what only the other one found nobody knows where the base had it.
    ranks = {one.chunk_id: (one.base_rank, one.origin) for one in record.chunks}
    assert ranks["c0"] == (0, "base")
    assert ranks["c5"] == (None, "widened")


def test_a_trace_of_two_feedback_retrievers_is_kept_once_and_learned_from(store):
    a, b = (wrap(store, part.documents, k=3) for part in lists())
    vote(a, "c2", times=4)
    retriever, before = mix(store, a, b, k=3), len(traces_in(store))
    found = retriever.invoke(REFUND, run(user_id="bob"))
    assert len(traces_in(store)) == before + 1
    # Both have it first by now, so that it is neither's.
    assert shown(found)[0] == ("c2", "both")
    assert marks(found[0])["belief"] > 0.5
    assert marks(found[0])["multiplier"] > 1
    [chunk, *_] = store.trace(trace_id_of(found)).chunks
    assert (chunk.chunk_id, chunk.belief) == ("c2", marks(found[0])["belief"])
    # And what is said of a mixed list is learned by both.
    for number in range(6):
        asked = retriever.invoke(REFUND, run(user_id=f"u{number}"), k=6)
        store.rate(trace_id_of(asked), 5, target="c3")
        store.rate(trace_id_of(asked), 1, target="c2")
    assert {ids(side.invoke(REFUND))[0] for side in (a, b)} == {"c3"}


class Backward:
    """A candidate that has the whole pool the other way round."""

    def score(self, question, candidates):
        return np.asarray(candidates.base_rank, dtype=np.float64)


async def test_a_candidate_ranker_is_compared_with_what_is_active(store):
    base = ListRetriever(documents=chunks())
    active = FeedbackRetriever(base_retriever=base, store=store, k=2)
    candidate = FeedbackRetriever(base_retriever=base, store=store, k=2, ranker=Backward())
    begun = start_experiment(store, "candidate-7")
    retriever = mix(store, active, candidate, k=2, experiment="candidate-7")
    for found in (retriever.invoke(REFUND), await retriever.ainvoke(REFUND)):
        assert sorted(shown(found)) == [("c0", "a"), ("c5", "b")]
        record = store.trace(trace_id_of(found))
        assert record.experiment == begun.experiment_id
        # Where the base had each, and the candidate, as a `FeedbackRetriever` alone would say.
        ranks = {one.chunk_id: (one.base_rank, one.ranker_rank) for one in record.chunks}
        assert (ranks["c0"], ranks["c5"]) == ((0, None), (5, 0))


def test_a_question_is_kept_with_its_vector_so_that_similar_ones_learn(store):
    retriever = mix(store)
    found = retriever.invoke(REFUND, run(user_id="ann"))
    store.rate(trace_id_of(found), 5, target=found[0])
    alike = store.evidence_for("When?", vector=[1.0, 0.0], min_similarity=0.9)
    assert [past.text for past in alike.questions] == [REFUND]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_where_a_answers_alone_the_vector_is_kept_too(store, way):
    def broken(query):
        msg = "no index"
        raise RuntimeError(msg)

    alone = mix(store, experiment="not-begun"), mix(store, b=RunnableLambda(broken))
    for retriever, question in zip(alone, (REFUND, MONEY), strict=True):
        call = getattr(retriever, way)(question, run(user_id="ann"))
        found = await call if way == "ainvoke" else call
        assert shown(found)[0] == ("c0", None)
        store.rate(trace_id_of(found), 5, target=found[0])
    alike = store.evidence_for("When?", vector=[1.0, 0.0], min_similarity=0.9)
    assert {past.text for past in alike.questions} == {REFUND, MONEY}


def test_what_is_not_kept_is_not_embedded(store, embeddings):
    mix(store).invoke(REFUND, run(**{UNRECORDED_KEY: True}))
    mix(store).invoke("  ")
    assert embeddings.asked == []


def test_a_second_search_of_a_trace_joins_it(store):
    retriever, trace_id = mix(store), new_trace_id()
    config = run(feedback_trace_id=trace_id, user_id="ann")
    retriever.invoke(REFUND, config)
    again = retriever.invoke("refund duration", run(**config["metadata"], feedback_attempt=2))
    record = store.trace(trace_id)
    assert trace_id_of(again) == trace_id
    assert record.question == REFUND
    assert dict(record.searches) == {1: REFUND, 2: "refund duration"}


def test_a_second_search_is_ranked_by_what_people_said_of_the_question(store):
    a, b = (wrap(store, part.documents, k=3) for part in lists())
    vote(a, "c2", times=4)
    retriever, trace_id = mix(store, a, b, k=3), new_trace_id()
    config = run(feedback_trace_id=trace_id, user_id="bob")
    assert shown(retriever.invoke(REFUND, config))[0] == ("c2", "both")
    # Another wording, of which nobody has said anything.
    again = retriever.invoke("reworded", run(**config["metadata"], feedback_attempt=2))
    assert trace_id_of(again) == trace_id
    assert shown(again)[0] == ("c2", "both")


def test_a_run_whose_trace_is_kept_above_leaves_none(store):
    found = mix(store).invoke(REFUND, run(**{UNRECORDED_KEY: True}))
    assert {marks(one)["team"] for one in found} == {"a", "b"}
    assert traces_in(store) == []


def test_a_blank_question_is_answered_and_not_kept(store):
    assert len(mix(store).invoke("  ")) == 4
    assert traces_in(store) == []


def test_explain_says_whose_pick_each_chunk_was(store):
    retriever = mix(store, k=2)
    found = retriever.invoke(REFUND)
    said = retriever.explain(trace_id_of(found))
    assert [(one["chunk_id"], one["team"]) for one in said if one["returned"]] == shown(found)
    # No feedback has ranked them, and nothing is told of any.
    assert {one["why"] for one in said} == {
        "Picked by a.",
        "Picked by b.",
        "As a retriever without feedback had it; too far down to be returned.",
    }
    with pytest.raises(UnknownTraceError):
        retriever.explain("no-such-trace")


def test_explain_says_what_feedback_did_below(store):
    a, b = (wrap(store, part.documents, k=3) for part in lists())
    vote(a, "c2", times=4)
    retriever = mix(store, a, b, k=3)
    first, second, *_ = retriever.explain(trace_id_of(retriever.invoke(REFUND)))
    assert first["why"].startswith(
        "Offered by both at once. Moved up from 3 to 1: feedback speaks"
    )
    assert second["why"].startswith(f"Picked by {second['team']}. ")
    assert first["evidence"][0]["question"] == REFUND


async def test_aexplain_says_the_same(store):
    retriever = mix(store)
    found = await retriever.ainvoke(REFUND)
    assert await retriever.aexplain(trace_id_of(found)) == retriever.explain(trace_id_of(found))


def test_a_graph_over_it_records_its_answer_in_the_same_trace(store):
    texts = [
        Document(
            "Refunds take 14 days after we get the goods.", id="r", metadata={"source": "r.md"}
        ),
        Document("Servers reboot at night on Sundays.", id="s", metadata={"source": "s.md"}),
    ]
    retriever = mix(store, *lists(texts, texts[::-1]), k=2)
    graph = create_reliable_rag(retriever, "offline", store=store)
    state = graph.invoke({"question": "How many days do refunds take?"})
    record = store.trace(state["trace_id"])
    assert {one.team for one in record.chunks} == {"a", "b"}
    assert record.status == state["status"]


# -- what it never costs


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_an_error_of_b_is_logged_once_and_a_answers_alone(store, caplog, way):
    def broken(query):
        msg = "no index"
        raise RuntimeError(msg)

    start_experiment(store, "e")
    retriever = mix(store, b=RunnableLambda(broken), experiment="e")
    for _ in range(2):
        call = getattr(retriever, way)(REFUND)
        found = await call if way == "ainvoke" else call
        assert shown(found) == [(f"c{at}", None) for at in range(4)]
        # It is no part of the experiment: nothing was compared.
        assert store.trace(trace_id_of(found)).experiment is None
    said = [one.getMessage() for one in caplog.records if "`b` failed" in one.getMessage()]
    assert said == ["`b` failed, and `a` answers alone: RuntimeError('no index')"]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_an_error_of_a_is_raised_and_the_trace_id_is_free_again(store, way):
    healthy = []

    def search(query):
        if not healthy:
            msg = "no index"
            raise RuntimeError(msg)
        return chunks()

    retriever, config = mix(store, a=RunnableLambda(search)), run(feedback_trace_id="t1")
    with pytest.raises(RuntimeError, match="no index"):
        await retriever.ainvoke(REFUND, config) if way == "ainvoke" else retriever.invoke(
            REFUND, config
        )
    healthy.append(True)
    call = getattr(retriever, way)(REFUND, config)
    assert trace_id_of(await call if way == "ainvoke" else call) == "t1"


class Broken(FeedbackStore):
    """A store that cannot be read."""

    def trace(self, trace_id):
        msg = "the disk is gone"
        raise StoreError(msg)


async def test_a_store_that_cannot_be_read_gives_the_order_of_a(tmp_path, caplog):
    store = Broken(f"sqlite:///{tmp_path}/f.db")
    retriever = mix(store)
    for way in ("invoke", "ainvoke"):
        config = run(feedback_trace_id=f"t-{way}")
        call = getattr(retriever, way)(REFUND, config)
        found = await call if way == "ainvoke" else call
        assert shown(found) == [(f"c{at}", None) for at in range(4)]
        assert trace_id_of(found) == f"t-{way}"
    assert any("does without the store" in one.getMessage() for one in caplog.records)


def test_a_database_that_cannot_be_opened_costs_no_answer(tmp_path):
    store = FeedbackStore(f"sqlite:///{tmp_path}/no/such/folder/f.db")
    found = mix(store, experiment="e").invoke(REFUND)
    assert ids(found) == ["c0", "c1", "c2", "c3"]


async def test_async_asks_both_at_once_and_never_blocks(store):
    both = asyncio.Barrier(2)

    async def search(query):
        await asyncio.wait_for(both.wait(), timeout=20)
        return chunks()

    async def backward(query):
        return (await search(query))[::-1]

    def never(query):
        raise AssertionError

    start_experiment(store, "e")
    retriever = mix(
        store, RunnableLambda(never, afunc=search), RunnableLambda(never, afunc=backward),
        experiment="e",
    )  # fmt: skip
    with blockbuster_ctx("langchain_feedback"):
        found = await retriever.ainvoke(REFUND, run(feedback_trace_id=new_trace_id()))
    assert {marks(one)["team"] for one in found} == {"a", "b"}


# -- the experiment


def test_lists_are_mixed_while_the_experiment_runs_and_only_then(store, caplog):
    feedback = wrap(store, chunks(), k=4)
    retriever = mix(store, a=feedback, experiment="candidate-7")
    before = retriever.invoke(REFUND)
    assert ids(before) == ["c0", "c1", "c2", "c3"]
    # It answered for itself, with its whole pool.
    assert "team" not in marks(before[0])
    assert len(store.trace(trace_id_of(before)).chunks) == 6
    assert [r.levelno for r in caplog.records if "candidate-7" in r.getMessage()] == [
        logging.WARNING
    ]

    begun = start_experiment(store, "candidate-7")
    during = retriever.invoke(REFUND)
    assert {marks(one)["team"] for one in during} == {"a", "b"}
    assert store.trace(trace_id_of(during)).experiment == begun.experiment_id

    stop_experiment(store, "candidate-7")
    after = retriever.invoke(REFUND)
    assert ids(after) == ids(before)
    assert len(traces_in(store)) == 3
    with reading(store) as connection:
        members = read_members(connection, store.namespace, begun.experiment_id, 10)
    assert [one for one, _ in members] == [trace_id_of(during)]


def test_before_it_begins_a_plain_retriever_is_recorded_here(store):
    found = mix(store, experiment="later").invoke(REFUND)
    assert shown(found) == [(f"c{at}", None) for at in range(4)]
    store.rate(trace_id_of(found), 5)


def test_an_empty_answer_of_a_feedback_retriever_keeps_its_trace(store):
    retriever = mix(store, a=wrap(store, []), experiment="later")
    found = retriever.invoke(REFUND)
    assert found == []
    assert traces_in(store) == [trace_id_of(found)]


@pytest.mark.parametrize("left", [[], [Document("Made anew.", id="new")]])
async def test_a_chain_over_a_feedback_retriever_that_drops_its_marks_keeps_one_trace(store, left):
    chain = wrap(store, chunks()) | RunnableLambda(lambda found: left)
    retriever = mix(store, a=chain, experiment="later")
    for way in ("invoke", "ainvoke"):
        trace_id = new_trace_id()
        call = getattr(retriever, way)(REFUND, run(feedback_trace_id=trace_id, user_id="ann"))
        found = await call if way == "ainvoke" else call
        assert (found, found.trace_id) == (left, trace_id)
        assert len(store.trace(trace_id).chunks) == 6
    assert len(traces_in(store)) == 2


def test_a_chain_over_plain_retrievers_that_finds_nothing_is_recorded_here(store):
    trace_id = new_trace_id()
    retriever = mix(store, a=RunnableLambda(lambda question: []), experiment="later")
    for attempt in (1, 2):
        config = run(feedback_trace_id=trace_id, feedback_attempt=attempt)
        assert trace_id_of(retriever.invoke(REFUND, config)) == trace_id
    assert traces_in(store) == [trace_id]
    assert set(store.trace(trace_id).searches) == {1, 2}


def test_marks_of_another_program_are_none_of_ours(store):
    odd = [Document("Text.", id="x", metadata={"feedback": {"trace_id": ["t"]}})]
    found = mix(store, a=RunnableLambda(lambda question: odd), experiment="later").invoke(REFUND)
    assert traces_in(store) == [trace_id_of(found)]


def test_lists_are_mixed_until_it_has_its_questions(store):
    begun = start_experiment(store, "e", horizon=3)
    retriever = mix(store, experiment="e")

    def mixed(actor):
        found = retriever.invoke(REFUND, run(user_id=actor))
        record = store.trace(trace_id_of(found))
        is_mixed = "b" in {marks(one)["team"] for one in found}
        assert record.experiment == (begun.experiment_id if is_mixed else None)
        return is_mixed

    # What a test asks is none of its questions.
    retriever.invoke(REFUND, run(source="eval"))
    assert [mixed(f"u{at}") for at in range(5)] == [True, True, True, False, False]
    # Without one of them it waits for another.
    store.forget("u1")
    assert [mixed(f"v{at}") for at in range(2)] == [True, False]


def test_a_copy_for_another_tenant_serves_that_tenants_experiments(store):
    start_experiment(store, "e", horizon=100)
    other = store.scoped("other")
    mine = mix(store, experiment="e", poll_s=3600)
    assert marks(mine.invoke(REFUND)[0])["team"] is not None
    theirs = mine.model_copy(update={"store": other})
    assert shown(theirs.invoke(REFUND)) == [(f"c{at}", None) for at in range(4)]
    renamed = mine.model_copy(update={"experiment": "not-begun"})
    assert shown(renamed.invoke(REFUND))[0] == ("c0", None)
    # And what the copies read is not the original's.
    assert marks(mine.invoke(REFUND)[0])["team"] is not None
    start_experiment(other, "e", horizon=100)
    fresh = mine.model_copy(update={"store": other})
    assert marks(fresh.invoke(REFUND)[0])["team"] is not None


def test_an_experiment_of_another_kind_mixes_nothing_and_says_so(store, caplog):
    start_experiment(store, "policies", "ab")
    assert ids(mix(store, experiment="policies").invoke(REFUND)) == ["c0", "c1", "c2", "c3"]
    assert any("'interleave'" in one.getMessage() for one in caplog.records)


def test_it_reads_of_the_experiment_now_and_then_only(store):
    retriever = mix(store, experiment="e", poll_s=3600)
    retriever.invoke(REFUND)
    start_experiment(store, "e")
    assert ids(retriever.invoke(REFUND)) == ["c0", "c1", "c2", "c3"]
    assert {marks(one)["team"] for one in mix(store, experiment="e").invoke(REFUND)} == {"a", "b"}


def test_another_namespace_has_its_own_experiments(store):
    start_experiment(store, "e")
    found = mix(store.scoped("other"), experiment="e").invoke(REFUND)
    assert shown(found)[0] == ("c0", None)


# -- settings


def test_settings_that_cannot_work_are_refused(store, tmp_path):
    with pytest.raises(ValueError, match="a is missing"):
        InterleavedRetriever(a=None, b=lists()[1], store=store)
    with pytest.raises(ValueError, match="expected a Runnable"):
        InterleavedRetriever(a=lists()[0], b="a name", store=store)
    with (
        FeedbackStore(f"sqlite:///{tmp_path}/other.db", embeddings=AngleEmbeddings()) as other,
        pytest.raises(ValueError, match="b has another store"),
    ):
        mix(store, b=FeedbackRetriever(base_retriever=lists()[0], store=other))


def test_it_may_be_copied_and_configured_as_any_retriever(store):
    start_experiment(store, "e")
    retriever = mix(store, experiment="e").with_config(metadata={"user_id": "ann"})
    found = retriever.invoke(REFUND)
    assert store.trace(trace_id_of(found)).actor == "ann"
    asked = store.trace(trace_id_of(found)).created_at
    assert asked.utcoffset() == timedelta(0)
