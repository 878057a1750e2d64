"""Two policies for different people: who gets which, and what is recorded of it."""

from collections import Counter

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.runnables import RunnableLambda
from sqlalchemy import select

from langchain_feedback import new_trace_id, trace_id_of
from langchain_feedback.loop.experiments import start_experiment, stop_experiment
from langchain_feedback.retrievers.split import SplitRetriever
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import traces
from langchain_feedback.store.transactions import reading
from tests.fakes import ListRetriever
from tests.unit_tests.retrievers.feedback_kit import REFUND, chunks, ids, marks, run, wrap

A, B = chunks(6), chunks(6, start=10)
PEOPLE = [f"user-{at}" for at in range(60)]


def split(store, a=None, b=None, **settings):
    return SplitRetriever(
        a=ListRetriever(documents=A) if a is None else a,
        b=ListRetriever(documents=B) if b is None else b,
        store=store,
        **{"experiment": "e", "poll_s": 0} | settings,
    )


def side_of(found):
    return {"c0": "a", "c10": "b"}[found[0].id]


def labels(store):
    """By trace id: whose trace it is, and which experiment it is part of."""
    columns = (traces.c.trace_id, traces.c.actor, traces.c.experiment)
    with reading(store) as connection:
        rows = connection.execute(select(*columns)).all()
    return {row.trace_id: (row.actor, row.experiment) for row in rows}


def test_about_half_of_the_people_get_each_and_everybody_keeps_his(store):
    start_experiment(store, "e", "ab")
    retriever = split(store)
    got = {one: side_of(retriever.invoke(REFUND, run(user_id=one))) for one in PEOPLE}
    assert 15 <= Counter(got.values())["b"] <= 45
    for one in PEOPLE:
        metadata = {"user_id": one}
        # In another session, and with another question, too.
        other = retriever.invoke("Another one?", run(user_id=one, session_id="s2"))
        assert side_of(other) == retriever.arm(metadata) == got[one]


async def test_async_gives_the_same_and_never_blocks(store):
    start_experiment(store, "e", "ab")
    retriever = split(store)
    for one in PEOPLE[:8]:
        sync = retriever.invoke(REFUND, run(user_id=one))
        with blockbuster_ctx("langchain_feedback"):
            found = await retriever.ainvoke(REFUND, run(user_id=one))
        assert ids(found) == ids(sync)
        assert await retriever.aarm({"user_id": one}) == side_of(found)


def test_a_share_of_a_tenth_is_kept_to(store):
    start_experiment(store, "e", "ab", share=0.1)
    retriever = split(store)
    arms = Counter(retriever.arm({"user_id": f"u{at}"}) for at in range(300))
    assert 10 <= arms["b"] <= 55


def test_who_is_unknown_is_divided_by_session_and_else_by_trace(store):
    start_experiment(store, "e", "ab")
    retriever = split(store)
    sessions = {
        session: {side_of(retriever.invoke(REFUND, run(session_id=session))) for _ in range(3)}
        for session in map(str, range(20))
    }
    assert all(len(sides) == 1 for sides in sessions.values())
    assert {side for sides in sessions.values() for side in sides} == {"a", "b"}
    nobody = Counter(side_of(retriever.invoke(REFUND)) for _ in range(40))
    assert set(nobody) == {"a", "b"}
    trace_id = new_trace_id()
    arm = retriever.arm({"feedback_trace_id": trace_id})
    assert side_of(retriever.invoke(REFUND, run(feedback_trace_id=trace_id))) == arm
    assert retriever.arm({}) == "a"


def test_the_arm_of_a_plain_retriever_is_recorded_here(store):
    begun = start_experiment(store, "e", "ab")
    found = split(store, k=3).invoke(REFUND, run(user_id="ann"))
    record = store.trace(trace_id_of(found))
    assert (record.actor, record.experiment) == ("ann", begun.experiment_id)
    assert [one.chunk_id for one in record.chunks if one.returned] == ids(found)
    assert marks(found[0])["team"] is None
    store.rate(trace_id_of(found), 5, target=found[0])
    # With its vector, so that similar questions learn.
    assert store.evidence_for("x", vector=[1.0, 0.0], min_similarity=0.9).questions


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_feedback_retriever_records_its_own_trace_which_joins_the_experiment(store, way):
    begun = start_experiment(store, "e", "ab")
    retriever = split(store, wrap(store, A), wrap(store, B))
    for number in range(6):
        call = getattr(retriever, way)(REFUND, run(user_id=f"u{number}"))
        found = await call if way == "ainvoke" else call
        record = store.trace(trace_id_of(found))
        assert record.experiment == begun.experiment_id
        # With its whole pool, as without an experiment.
        assert len(record.chunks) == 6
    assert len(labels(store)) == 6


def test_an_empty_answer_joins_it_too(store):
    begun = start_experiment(store, "e", "ab")
    found = split(store, wrap(store, []), wrap(store, [])).invoke(REFUND, run(user_id="ann"))
    assert found == []
    assert labels(store) == {trace_id_of(found): ("ann", begun.experiment_id)}


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("actor", ["ann", None])
async def test_a_chain_that_drops_all_sources_joins_it_once(store, way, actor):
    begun = start_experiment(store, "e", "ab")
    chains = [wrap(store, part) | RunnableLambda(lambda found: []) for part in (A, B)]
    trace_id = new_trace_id()
    metadata = {"feedback_trace_id": trace_id} | ({"user_id": actor} if actor else {})
    call = getattr(split(store, *chains), way)(REFUND, run(**metadata))
    found = await call if way == "ainvoke" else call
    assert (found, trace_id_of(found)) == ([], trace_id)
    assert labels(store) == {trace_id: (actor, begun.experiment_id)}


def test_a_given_trace_id_is_kept_to_and_given_once(store):
    start_experiment(store, "e", "ab")
    retriever = split(store, wrap(store, A), wrap(store, B))
    trace_id = new_trace_id()
    config = run(feedback_trace_id=trace_id, user_id="ann")
    assert trace_id_of(retriever.invoke(REFUND, config)) == trace_id
    # The same id again is another question's: it gets one of its own.
    assert trace_id_of(retriever.invoke(REFUND, config)) != trace_id
    assert len(labels(store)) == 2


@pytest.mark.parametrize("recorded_below", [True, False])
def test_nobodys_trace_that_goes_by_another_id_is_no_part_of_it(store, recorded_below):
    begun = start_experiment(store, "e", "ab")
    sides = (wrap(store, A), wrap(store, B)) if recorded_below else ()
    retriever = split(store, *sides)
    config = run(feedback_trace_id=new_trace_id())
    first, second = (trace_id_of(retriever.invoke(REFUND, config)) for _ in range(2))
    assert labels(store) == {first: (None, begun.experiment_id), second: (None, None)}


def test_before_and_after_everybody_gets_a(store, caplog):
    retriever = split(store)
    assert {side_of(retriever.invoke(REFUND, run(user_id=one))) for one in PEOPLE} == {"a"}
    start_experiment(store, "e", "ab")
    assert {side_of(retriever.invoke(REFUND, run(user_id=one))) for one in PEOPLE} == {"a", "b"}
    stop_experiment(store, "e")
    assert {side_of(retriever.invoke(REFUND, run(user_id=one))) for one in PEOPLE} == {"a"}
    assert Counter(bool(label) for _, label in labels(store).values()) == {False: 120, True: 60}
    assert "There is no experiment 'e'" in caplog.text


def test_everybody_gets_a_once_it_has_its_questions(store):
    start_experiment(store, "e", "ab", horizon=30)
    retriever = split(store)
    got = [side_of(retriever.invoke(REFUND, run(user_id=one))) for one in PEOPLE]
    assert set(got[:30]) == {"a", "b"}
    assert set(got[30:]) == {"a"}
    assert Counter(bool(label) for _, label in labels(store).values()) == {True: 30, False: 30}


def test_a_copy_for_another_tenant_serves_that_tenants_experiments(store):
    start_experiment(store, "e", "ab")
    mine = split(store, poll_s=3600)
    got = {side_of(mine.invoke(REFUND, run(user_id=one))) for one in PEOPLE}
    assert got == {"a", "b"}
    theirs = mine.model_copy(update={"store": store.scoped("other")})
    assert {side_of(theirs.invoke(REFUND, run(user_id=one))) for one in PEOPLE} == {"a"}
    assert {theirs.arm({"user_id": one}) for one in PEOPLE} == {"a"}
    assert {mine.arm({"user_id": one}) for one in PEOPLE} == {"a", "b"}


def test_a_store_that_is_away_gives_everybody_a(tmp_path):
    store = FeedbackStore(f"sqlite:///{tmp_path}/no/such/folder/f.db")
    retriever = split(store)
    assert {side_of(retriever.invoke(REFUND, run(user_id=one))) for one in PEOPLE[:3]} == {"a"}


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_an_error_is_the_callers_whichever_side_it_comes_from(store, way):
    def broken(query):
        msg = "no index"
        raise RuntimeError(msg)

    start_experiment(store, "e", "ab")
    retriever = split(store, RunnableLambda(broken), RunnableLambda(broken))
    config = run(user_id="ann")
    if way == "invoke":
        with pytest.raises(RuntimeError, match="no index"):
            retriever.invoke(REFUND, config)
    else:
        with pytest.raises(RuntimeError, match="no index"):
            await retriever.ainvoke(REFUND, config)


def test_an_experiment_is_not_optional_here(store):
    with pytest.raises(ValueError, match="experiment"):
        SplitRetriever(a=ListRetriever(documents=A), b=ListRetriever(documents=B), store=store)
