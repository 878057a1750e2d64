"""A14: one question asked is one trace, whoever repeats its id."""

import os
import signal
import threading

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from langchain_feedback import (
    FeedbackRetriever,
    create_reliable_rag,
    new_trace_id,
    trace_id_of,
)
from langchain_feedback import claims as claims_module
from langchain_feedback.claims import Asked, Claims, claims_of
from langchain_feedback.errors import UnknownTraceError
from langchain_feedback.traces import marks_of
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


@pytest.fixture
def trace_id():
    return new_trace_id()


def again(trace_id, attempt=2, **more):
    return run(feedback_trace_id=trace_id, feedback_attempt=attempt, **more)


def test_a14_the_given_id_is_the_traces(store, trace_id):
    found = wrap(store).invoke(REFUND, run(feedback_trace_id=trace_id))
    assert trace_id_of(found) == trace_id
    assert store.trace(trace_id).question == REFUND


def test_a14_without_one_each_call_has_its_own(store):
    retriever = wrap(store)
    made = [trace_id_of(found) for found in retriever.batch([REFUND] * 5)]
    assert len(set(made)) == 5
    assert all(store.trace(one) for one in made)


def test_a14_a_rating_before_and_after(store, trace_id):
    with pytest.raises(UnknownTraceError):
        store.rate(trace_id, 5)
    store.rate(trace_id, 5, pending=True, actor="ann")
    wrap(store, k=1).invoke(REFUND, run(feedback_trace_id=trace_id))
    assert store.evidence_for(REFUND).cells


def test_who_asks_and_where(store):
    retriever = wrap(store)
    cases = [
        ({"user_id": "ann", "session_id": "s", "thread_id": "t"}, ("ann", "s")),
        ({"user_id": 7, "thread_id": "t"}, ("7", "t")),
        ({"user_id": "", "session_id": None}, (None, None)),
        ({"namespace": "other", "feedback_namespace": "other"}, (None, None)),
    ]
    for metadata, (actor, session) in cases:
        record = store.trace(trace_id_of(retriever.invoke(REFUND, run(**metadata))))
        assert (record.actor, record.session_id) == (actor, session)


def test_the_namespace_is_the_stores_alone(store):
    vote(wrap(store.scoped("tenant")), "c4", times=3)
    assert ids(wrap(store).invoke(REFUND, run(namespace="tenant")))[0] == "c0"
    assert ids(wrap(store.scoped("tenant")).invoke(REFUND))[0] == "c4"


ODD_MARKS = ["good", ["a"], None, 7, np.array([1, 2]), np.float64(0.5), {"trace_id": ["t"]}, {1}]


class TestWhatAnIndexKeepsUnderOurKey:
    @pytest.mark.parametrize("odd", ODD_MARKS)
    async def test_it_breaks_nothing(self, store, odd):
        documents = [
            Document("A text.", id="a", metadata={"feedback": odd, "relevance_score": "x"})
        ]
        retriever = wrap(store, documents)
        found = retriever.invoke(REFUND)
        store.rate(trace_id_of(found), 5, target=found[0])
        assert trace_id_of(await retriever.ainvoke(REFUND))
        assert marks(found[0])["chunk_id"] == "a"
        assert repr(documents[0].metadata["feedback"]) == repr(odd)

    @pytest.mark.parametrize("odd", ODD_MARKS)
    def test_it_is_no_trace_id(self, odd):
        document = Document("A text.", metadata={"feedback": odd})
        assert "x" not in marks_of(document)
        with pytest.raises(ValueError, match="carry no trace id"):
            trace_id_of(document)

    def test_what_else_stands_there_is_kept(self, store):
        note = {"duplicates": [{"chunk_id": "b"}], "origin": "theirs", "trace_id": "old"}
        document = Document("A text.", id="a", metadata={"feedback": note})
        (found,) = wrap(store, [document]).invoke(REFUND)
        assert marks(found)["duplicates"] == note["duplicates"]
        assert (marks(found)["origin"], marks(found)["base_rank"]) == ("base", 0)
        assert store.trace(marks(found)["trace_id"]).question == REFUND
        assert document.metadata["feedback"] is note


class TestNothingFound:
    """An empty list still knows which retrieval it is."""

    async def test_it_may_be_rated(self, store, trace_id):
        retriever = wrap(store, [])
        config = run(feedback_trace_id=trace_id)
        found = retriever.invoke(REFUND, config)
        assert (found, trace_id_of(found)) == ([], trace_id)
        for again in (
            await retriever.ainvoke(REFUND, config),
            retriever.bind(k=2).with_retry().invoke(REFUND, config),
            retriever.with_config(tags=["x"]).batch([REFUND], config)[0],
        ):
            assert trace_id_of(again) not in ("", trace_id)
            assert store.trace(trace_id_of(again)).question == REFUND

    def test_another_empty_list_does_not(self):
        with pytest.raises(ValueError, match="new_trace_id"):
            trace_id_of([])


class TestSecondSearch:
    def test_it_joins_and_the_credit_goes_to_the_first_question(self, store, trace_id):
        retriever = wrap(store)
        vote(retriever, "c4", times=3)
        retriever.invoke(REFUND, run(feedback_trace_id=trace_id, user_id="bob"))
        found = retriever.invoke(SERVER, again(trace_id, user_id="bob"))
        # The base is asked the new text, the evidence is the own question's.
        assert retriever.base_retriever.queries[-1][0] == SERVER
        assert (trace_id_of(found), ids(found)[0]) == (trace_id, "c4")
        record = store.trace(trace_id)
        assert (record.question, record.searches) == (REFUND, {1: REFUND, 2: SERVER})
        store.rate(trace_id, 1, target="c0")
        assert store.evidence_for(REFUND, min_similarity=0.5).cells[-1].negative > 0
        assert not store.evidence_for(SERVER, min_similarity=0.5).cells

    def test_it_joins_across_processes(self, store, trace_id):
        wrap(store).invoke(REFUND, run(feedback_trace_id=trace_id))
        elsewhere = store.scoped(store.namespace)
        found = wrap(elsewhere).invoke(SERVER, again(trace_id))
        assert trace_id_of(found) == trace_id
        assert store.trace(trace_id).question == REFUND
        refused = wrap(elsewhere).invoke(SERVER, again(trace_id))
        assert trace_id_of(refused) != trace_id

    def test_an_unknown_trace_takes_the_query_as_its_question(self, store, trace_id):
        found = wrap(store).invoke(SERVER, again(trace_id, 3))
        assert trace_id_of(found) == trace_id
        assert store.trace(trace_id).question == SERVER
        assert store.trace(trace_id).searches == {3: SERVER}

    @pytest.mark.parametrize("elsewhere", [False, True])
    @pytest.mark.parametrize(
        "case", ["same attempt", "earlier attempt", "another actor", "answered", "abstained"]
    )
    def test_any_other_reuse_gets_a_fresh_id_and_one_log_line(
        self, store, trace_id, caplog, case, elsewhere
    ):
        wrap(store).invoke(REFUND, again(trace_id, 2, user_id="ann"))
        if case in ("answered", "abstained"):
            facts = {"answer": "14 days."} if case == "answered" else {"status": "abstained"}
            store.update_trace(trace_id, **facts)
        attempt = {"same attempt": 2, "earlier attempt": 1}.get(case, 3)
        actor = "bob" if case == "another actor" else "ann"
        store_used = store.scoped(store.namespace) if elsewhere else store
        found = wrap(store_used).invoke(MONEY, again(trace_id, attempt, user_id=actor))
        fresh = trace_id_of(found)
        assert fresh != trace_id
        record = store.trace(fresh)
        assert (record.question, record.actor, record.searches) == (MONEY, actor, {1: MONEY})
        assert store.trace(trace_id).searches == {2: REFUND}
        (line,) = caplog.records
        assert trace_id in line.getMessage()
        assert fresh in line.getMessage()

    def test_a_refused_search_does_not_shut_out_the_right_one(self, store, trace_id):
        wrap(store).invoke(REFUND, run(feedback_trace_id=trace_id, user_id="ann"))
        elsewhere = wrap(store.scoped(store.namespace))
        elsewhere.invoke(SERVER, again(trace_id, 5, user_id="eve"))
        joined = elsewhere.invoke(SERVER, again(trace_id, 2, user_id="ann"))
        assert trace_id_of(joined) == trace_id

    @pytest.mark.parametrize("attempt", ["two", None, 0, -3, float("inf"), [2]])
    def test_a_malformed_attempt_counts_as_the_first(self, store, trace_id, attempt):
        wrap(store).invoke(REFUND, again(trace_id, attempt))
        assert store.trace(trace_id).searches == {1: REFUND}


class TestWhatAClientMaySend:
    @pytest.mark.parametrize("given", ["a\0b", "x" * 5000, "line\nbreak", "\ud800"])
    def test_an_id_that_no_database_holds_is_replaced(self, store, given, caplog):
        found = wrap(store).invoke(REFUND, run(feedback_trace_id=given))
        assert trace_id_of(found) != given
        assert store.trace(trace_id_of(found))
        (line,) = caplog.records
        assert "can be stored" in line.getMessage()
        assert len(line.getMessage()) < 500

    def test_ids_of_another_type(self, store):
        assert trace_id_of(wrap(store).invoke(REFUND, run(feedback_trace_id=7))) == "7"
        assert trace_id_of(wrap(store).invoke(REFUND, run(feedback_trace_id=""))) != ""

    def test_names_that_no_database_holds(self, store):
        asked = run(user_id="a\0\ud800", session_id="\0", feedback_attempt=10**40)
        record = store.trace(trace_id_of(wrap(store).invoke(REFUND, asked)))
        assert record.actor.startswith("a")
        assert record.session_id == "\ufffd"


class TestOneIdAtOnce:
    def test_of_a_batch_exactly_one_keeps_it(self, store, trace_id, caplog):
        retriever = wrap(store)
        questions = [REFUND, MONEY, SERVER, "Another?"]
        found = retriever.batch(questions, run(feedback_trace_id=trace_id))
        made = [trace_id_of(one) for one in found]
        assert len(set(made)) == 4
        assert made.count(trace_id) == 1
        assert len(caplog.records) == 3
        kept = questions[made.index(trace_id)]
        assert store.trace(trace_id).question == kept

    async def test_of_an_async_batch_too(self, store, trace_id):
        found = await wrap(store).abatch([REFUND] * 8, run(feedback_trace_id=trace_id))
        assert [trace_id_of(one) for one in found].count(trace_id) == 1

    def test_of_two_retrievers_over_one_store(self, store, trace_id):
        start, made = threading.Barrier(6), []

        def search():
            retriever = wrap(store)
            start.wait()
            made.append(trace_id_of(retriever.invoke(REFUND, run(feedback_trace_id=trace_id))))

        threads = [threading.Thread(target=search) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made.count(trace_id) == 1
        assert len(set(made)) == 6

    def test_another_actor_cannot_join_while_the_store_is_away(self):
        claims = Claims()
        claims.claim(Asked(REFUND, "t", 1, "ann"), lambda _: None)
        assert claims.claim(Asked(SERVER, "t", 2, "eve"), lambda _: None).trace_id != "t"
        joined = claims.claim(Asked(SERVER, "t", 2, "ann"), lambda _: None)
        assert (joined.trace_id, joined.question) == ("t", REFUND)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a17_a_fork_while_another_thread_claims(self, store):
        wrap(store).invoke(REFUND)
        held = claims_of(store)
        with held._lock, claims_module._all_lock:
            child = os.fork()
            if not child:
                signal.alarm(10)
                given = Asked(REFUND, "forked")
                ok = claims_of(store).claim(given, lambda _: None).trace_id == "forked"
                os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0

    def test_the_memory_is_bounded(self):
        claims = Claims(most=3)
        for at in range(10):
            claims.claim(Asked("q", f"t{at}"), lambda _: None)
        assert len(claims._held) == 3
        # A forgotten one is the store's business.
        assert claims.claim(Asked("q", "t0"), lambda _: None).trace_id == "t0"


class TestFailure:
    def test_a_retrieval_that_failed_may_be_tried_again_under_its_id(
        self, store, trace_id, caplog
    ):
        calls = []

        def flaky(_):
            calls.append(1)
            if len(calls) == 1:
                msg = "try again"
                raise ConnectionError(msg)
            return chunks()

        retriever = FeedbackRetriever(base_retriever=RunnableLambda(flaky), store=store)
        retrying = retriever.with_retry(wait_exponential_jitter=False)
        found = retrying.invoke(REFUND, run(feedback_trace_id=trace_id))
        assert trace_id_of(found) == trace_id
        assert not caplog.records

    async def test_a_failed_second_search_leaves_the_first(self, store, trace_id):
        def picky(query):
            if query == SERVER:
                raise ValueError(query)
            return chunks()

        retriever = FeedbackRetriever(base_retriever=RunnableLambda(picky), store=store)
        await retriever.ainvoke(REFUND, run(feedback_trace_id=trace_id))
        with pytest.raises(ValueError, match="server"):
            await retriever.ainvoke(SERVER, again(trace_id))
        found = await retriever.ainvoke(MONEY, again(trace_id))
        assert trace_id_of(found) == trace_id
        assert store.trace(trace_id).searches == {1: REFUND, 2: MONEY}


def test_a14_the_graphs_rewritten_search_joins_its_trace(store):
    documents = chunks()
    base = ListRetriever(documents=documents, by_query={REFUND: []})
    retriever = FeedbackRetriever(base_retriever=base, store=store)
    graph = create_reliable_rag(retriever, "offline")
    state = graph.invoke({"question": REFUND})
    record = store.trace(state["trace_id"])
    assert record.question == REFUND
    assert min(record.searches) == 1
    assert all(marks(document)["trace_id"] == state["trace_id"] for document in state["documents"])


def test_a14_a_threads_second_question_with_the_same_id(store, trace_id, caplog):
    retriever = wrap(store)
    config = run(feedback_trace_id=trace_id, thread_id="chat")
    first, second = retriever.invoke(REFUND, config), retriever.invoke(SERVER, config)
    assert trace_id_of(first) == trace_id
    assert trace_id_of(second) != trace_id
    assert len(caplog.records) == 1


async def test_runs_below_name_the_trace_so_that_an_answers_run_is_found_by_it(store, caplog):
    seen = []

    def search(query, config):
        seen.append(config["metadata"])
        return chunks()

    inner = FeedbackRetriever(base_retriever=RunnableLambda(search), store=store)
    retriever = FeedbackRetriever(base_retriever=inner, store=store)
    for found in (retriever.invoke(REFUND), await retriever.ainvoke(REFUND, run(user_id="ann"))):
        below = store.trace(seen[-1]["feedback_searched_for"])
        assert below.question == REFUND
        assert below.trace_id != trace_id_of(found)  # a retriever below has a trace of its own
    assert seen[-1]["user_id"] == "ann"
    alone = FeedbackRetriever(base_retriever=RunnableLambda(search), store=store).invoke(REFUND)
    assert seen[-1]["feedback_searched_for"] == trace_id_of(alone)
    assert not caplog.records
