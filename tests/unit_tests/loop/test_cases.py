"""Cases: what is frozen, what never may be, and what makes them go."""

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from sqlalchemy import select, update

from langchain_feedback import FeedbackRetriever, FeedbackStore
from langchain_feedback.loop._cases.splits import learned_from
from langchain_feedback.loop.cases import freeze_cases, import_cases, read_cases
from langchain_feedback.loop.labels import reviewed_questions
from langchain_feedback.loop.mining import mine
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.loop.splitting import Splittable, alike
from langchain_feedback.loop.training import train_ranker, training_groups
from langchain_feedback.ranking.estimating import LinearEstimator
from langchain_feedback.store.learning_schema import eval_cases
from langchain_feedback.store.loop_schema import owner_items, review_events, review_items
from langchain_feedback.store.questions import question_key
from langchain_feedback.store.records import TracedChunk
from langchain_feedback.store.schema import pins, traces
from langchain_feedback.store.schema import questions as questions_table
from langchain_feedback.store.transactions import reading, writing
from langchain_feedback.traces import UNRECORDED_KEY
from tests.unit_tests.loop.casekit import clicked, frozen, pool, question
from tests.unit_tests.loop.kit import asked, said
from tests.unit_tests.loop.learned import decide, pool_of, reviewed

NOW = datetime.now(UTC)


@pytest.fixture
def quick():
    with FeedbackStore("sqlite://") as opened:
        yield opened


def everything(store):
    with reading(store) as connection:
        return [tuple(row) for row in connection.execute(select(eval_cases))]


def held_out(store, count=1, start=0):
    """Review questions until so many are held out; return their numbers."""
    found, number = [], start
    while len(found) < count:
        reviewed(store, number)
        text = f"What is the answer to topic alpha{number}?"
        if text not in {group.question for group in training_groups(store).groups}:
            found.append(number)
        number += 1
    return found


# -- reviewed questions


def test_each_reviewed_question_teaches_or_is_a_case_and_stays_that_check3(store):
    for number in range(30):
        reviewed(store, number)
    done = freeze_cases(store)
    taught = {group.question for group in training_groups(store).groups}
    cases = {case.question for case in read_cases(store)}
    assert not taught & cases
    assert len(taught | cases) == 30
    assert (done.version, done.added, done.by_origin) == (1, len(cases), {"reviewed": len(cases)})
    before = everything(store)
    assert (freeze_cases(store).added, everything(store)) == (0, before)
    reviewed(store, 99)
    freeze_cases(store)
    assert {group.question for group in training_groups(store).groups} >= taught
    assert {case.question for case in read_cases(store, 1)} == cases


def test_a_case_holds_the_pool_in_the_bases_order_and_the_label(quick):
    [number] = held_out(quick)
    freeze_cases(quick)
    [case] = read_cases(quick)
    documents = pool_of(number)
    assert [chunk.chunk_id for chunk in case.pool] == [one.id for one in documents]
    assert [chunk.base_rank for chunk in case.pool] == list(range(6))
    assert [chunk.document.page_content for chunk in case.pool] == [
        one.page_content for one in documents
    ]
    assert [chunk.heading for chunk in case.pool] == [f"Part {at}" for at in range(6)]
    assert [one.chunk_id for one in case.relevant] == [f"q{number}-3"]
    assert (case.stratum, case.source, case.changed) == ("failing", f"{number}.md", False)


def test_what_mining_drew_by_chance_is_ordinary(quick):
    for number in range(30):
        asked(quick, f"What is thing{number}?", pool(number), actor=f"u{number}", answer="Yes.")
    queue = ReviewQueue(quick, double=0)
    assert mine(quick, queue=queue, ordinary=30).added == 30
    while item := queue.claim("ann"):
        queue.decide(item, "confirm", right_chunks=[item.snapshot["chunks"][2]["chunk_id"]])
    done = freeze_cases(quick)
    assert done.by_stratum == {"ordinary": done.added}
    assert 0 < done.added < 20


def test_a_verdict_taken_back_retires_its_case_and_given_again_brings_it_back(quick):
    [number] = held_out(quick)
    assert freeze_cases(quick).added == 1
    queue = ReviewQueue(quick, double=0)
    queue.undo("ann")
    gone = freeze_cases(quick)
    assert (gone.version, gone.added, gone.retired, read_cases(quick)) == (1, 0, 1, [])
    queue.decide(queue.claim("ann"), "confirm", right_chunks=[f"q{number}-3"])
    back = freeze_cases(quick)
    assert (back.version, back.added, back.retired, len(read_cases(quick))) == (2, 1, 0, 1)


def test_another_verdict_replaces_the_case(quick):
    [number] = held_out(quick)
    freeze_cases(quick)
    queue = ReviewQueue(quick, double=0)
    queue.undo("ann")
    queue.decide(queue.claim("ann"), "confirm", right_chunks=[f"q{number}-1"])
    assert (freeze_cases(quick).retired, freeze_cases(quick).retired) == (1, 0)
    [case] = read_cases(quick)
    assert [one.chunk_id for one in case.relevant] == [f"q{number}-1"]


def test_a_changed_chunk_sets_its_case_aside_until_it_is_reviewed_anew(quick):
    [number] = held_out(quick)
    freeze_cases(quick)
    text = f"What is the answer to topic alpha{number}?"
    changed = Document("Changed.", id=f"q{number}-3", metadata={"source": f"{number}.md"})
    anew = [*pool_of(number)[:3], changed]
    trace_id = asked(quick, text, anew, actor="b", answer="New.")
    assert [case.changed for case in read_cases(quick)] == [True]
    assert freeze_cases(quick).added == 0
    decide(quick, trace_id, text, anew, [f"q{number}-3"])
    done = freeze_cases(quick)
    assert (done.added, done.retired) == (1, 1)
    assert [case.changed for case in read_cases(quick)] == [False]


# -- ordinary traffic


CREDITED = {
    "a click": (["source_click", 1], {}, [1]),
    "a thumb on a source": (["thumbs_up", 1], {}, [1]),
    "a copy of a source": (["copy", 2], {}, [2]),
    "a copy of an answer that quotes": (["copy", None], {"cited": ["7-3"]}, [3]),
    "praise of an answer that quotes": (["thumbs_up", None], {"cited": ["7-0", "7-3"]}, [0, 3]),
    "praise of an answer that quotes nothing": (["thumbs_up", None], {"cited": []}, None),
    "praise of an answer whose quotes are unknown": (["thumbs_up", None], {}, None),
    "a complaint": (["thumbs_down", 1], {}, None),
    "a source that was passed over": (["source_skipped", 1], {}, None),
    "an abandoned session": (["abandon", None], {}, None),
    "a test": (["source_click", 1], {"traffic": "eval"}, None),
}


@pytest.mark.parametrize("case", CREDITED)
def test_what_people_credit_in_ordinary_traffic_is_sampled(quick, case):
    (name, at), facts, expected = CREDITED[case]
    chunks = pool(7)
    trace_id = asked(quick, question(7), chunks, actor="a", answer="In a box.", **facts)
    said(quick, trace_id, name, **({} if at is None else {"target": chunks[at]}))
    done = freeze_cases(quick)
    found = [[int(one.chunk_id[-1]) for one in case.relevant] for case in read_cases(quick)]
    assert found == ([] if expected is None else [expected])
    assert done.by_origin == ({} if expected is None else {"sampled": 1})


@pytest.mark.parametrize(("rating", "count"), [(5, 1), (4, 1), (3, 0), (2, 0)])
def test_ratings_from_four_on_credit(quick, rating, count):
    chunks = pool(7)
    trace_id = asked(quick, question(7), chunks, actor="a")
    said(quick, trace_id, "rating", rating=rating, target=chunks[1])
    assert freeze_cases(quick).added == count


def test_a_complaint_about_any_answer_to_it_keeps_a_question_out(quick):
    clicked(quick, 1)
    trace_id = asked(quick, question(1), pool(1), actor="b")
    said(quick, trace_id, "rephrase")
    assert freeze_cases(quick).added == 0


def test_what_is_older_is_not_sampled(quick):
    clicked(quick, 1, at=NOW - timedelta(days=29))
    clicked(quick, 2, at=NOW - timedelta(days=27))
    freeze_cases(quick)
    assert [case.question for case in read_cases(quick)] == [question(2)]
    assert freeze_cases(quick, days=30).added == 1
    assert freeze_cases(quick, now=NOW + timedelta(days=60)).added == 0


def test_it_stops_at_the_most_that_a_set_holds_and_draws_the_same_ones(quick):
    for number in range(12):
        clicked(quick, number)
    other = FeedbackStore("sqlite://")
    for number in reversed(range(12)):
        clicked(other, number)
    assert (freeze_cases(quick, sampled=5).added, freeze_cases(other, sampled=5).added) == (5, 5)
    drawn = {case.question for case in read_cases(quick)}
    assert drawn == {case.question for case in read_cases(other)}
    assert freeze_cases(quick, sampled=5).added == 0
    assert freeze_cases(quick, sampled=7).added == 2
    assert freeze_cases(quick, sampled=0).cases == 7
    with pytest.raises(ValueError, match="sampled must be at least 0"):
        freeze_cases(quick, sampled=-1)


def test_freezing_in_several_places_at_once_makes_one_set(url):
    with FeedbackStore(url) as store:
        for number in range(10):
            clicked(store, number)

    def freeze(_):
        with FeedbackStore(url) as mine:
            return freeze_cases(mine)

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(freeze, range(4)))
    assert {one.version for one in done} == {1}
    assert sum(one.added for one in done) == 10
    with FeedbackStore(url) as store:
        assert len(read_cases(store)) == 10


def test_a_sampled_case_goes_with_its_credit_or_with_a_complaint(quick):
    first, second = clicked(quick, 1), clicked(quick, 2)
    trace_id = asked(quick, question(3), pool(3), actor="a")
    event = said(quick, trace_id, "source_click", target=pool(3)[0])
    assert freeze_cases(quick).added == 3
    quick.retract(event)
    said(quick, second, "thumbs_down")
    done = freeze_cases(quick)
    assert (done.retired, done.added) == (2, 0)
    assert [case.trace_id for case in read_cases(quick)] == [first]


def test_another_click_leaves_what_is_frozen_and_a_new_text_is_sampled_anew(quick):
    trace_id = clicked(quick, 1)
    freeze_cases(quick)
    said(quick, trace_id, "source_click", target=pool(1)[0])
    assert (freeze_cases(quick).retired, len(read_cases(quick)[0].relevant)) == (0, 1)
    anew = pool(1)
    anew[2] = Document("The thing1 is in the cellar.", id="1-2", metadata={"source": "1.md"})
    clicked(quick, 1, chunks=anew, actor="b")
    done = freeze_cases(quick)
    assert (done.retired, done.added) == (1, 1)
    [case] = read_cases(quick)
    assert (case.pool[2].text, case.changed) == ("The thing1 is in the cellar.", False)


def test_a_credited_chunk_that_changed_is_no_right_one_and_the_set_stays_what_it_is(quick):
    chunks = pool(1)
    trace_id = clicked(quick, 1, chunks=chunks)
    said(quick, trace_id, "source_click", target=chunks[0])
    clicked(quick, 2, right=0)
    assert freeze_cases(quick).version == 1
    anew = [Document("Changed.", id=one, metadata={"source": "1.md"}) for one in ("1-0", "2-0")]
    asked(quick, "Anything else?", anew, actor="z")
    done = freeze_cases(quick)
    assert (done.version, done.added, done.retired) == (2, 1, 2)
    [case] = read_cases(quick)
    assert [one.chunk_id for one in case.relevant] == ["1-2"]
    assert case.changed is False
    for _ in range(3):
        again = freeze_cases(quick)
        assert (again.version, again.added, again.retired) == (2, 0, 0)


def test_a_verdict_takes_the_place_of_what_was_sampled(quick):
    trace_id = clicked(quick, 1)
    freeze_cases(quick)
    decide(quick, trace_id, question(1), pool(1), ["1-4"])
    done = freeze_cases(quick)
    assert (done.retired, done.added, done.by_origin) == (1, 1, {"reviewed": 1})
    assert [one.chunk_id for one in read_cases(quick)[0].relevant] == ["1-4"]


def test_what_the_base_did_not_find_is_no_part_of_the_pool_and_lost_texts_are_not(quick):
    documents = [
        TracedChunk(document, rank, base_rank=base, origin=origin)
        for rank, (document, base, origin) in enumerate(
            zip(
                pool(1),
                (None, 2, 0, 1, 3),
                ("pinned", "base", "base", "base", "base"),
                strict=True,
            )
        )
    ]
    trace_id = asked(quick, question(1), documents, actor="a")
    said(quick, trace_id, "source_click", target=pool(1)[2])
    other = Document("Changed since.", id="1-4", metadata={"source": "1.md"})
    asked(quick, "Anything?", [other], actor="b")
    freeze_cases(quick)
    [case] = read_cases(quick)
    assert [(one.chunk_id, one.base_rank) for one in case.pool] == [
        ("1-2", 0), ("1-3", 1), ("1-1", 2),
    ]  # fmt: skip


# -- never alike on both sides


def test_a_sampled_question_like_one_that_is_reviewed_is_left_out_check3(quick):
    chunks = pool(1)
    text = "How long does a refund by card take?"
    trace_id = asked(quick, text, chunks, actor="a")
    decide(quick, trace_id, text, chunks, ["1-2"])
    again, other = "How long do refunds by card take", question(1)
    for one in (again, other):
        clicked(quick, 1, text=one, chunks=chunks)
    done = freeze_cases(quick)
    sampled = [case.question for case in read_cases(quick) if case.origin == "sampled"]
    assert (sampled, done.left_out) == ([other], 1)


def test_vectors_say_what_is_alike_where_there_are_some_check3(quick):
    chunks = pool(1)
    trace_id = asked(quick, "Some words", chunks, actor="a", vector=[1.0, 0.0])
    decide(quick, trace_id, "Some words", chunks, ["1-2"])
    for text, vector in ((question(2), [1.0, 0.1]), (question(3), [0.0, 1.0])):
        trace_id = asked(quick, text, chunks, actor="b", vector=vector)
        said(quick, trace_id, "source_click", target=chunks[2])
    freeze_cases(quick)
    sampled = [case.question for case in read_cases(quick) if case.origin == "sampled"]
    assert sampled == [question(3)]


def test_what_the_digest_would_let_teach_is_not_sampled_check3(quick):
    for number in range(60):
        clicked(quick, number, text=f"What is thing{number}?")
    done = freeze_cases(quick)
    assert 0.15 < done.added / 60 < 0.45
    assert done.added + done.left_out == 60


def test_what_waits_for_a_reviewer_is_not_sampled(quick):
    clicked(quick, 1)
    queue = ReviewQueue(quick, double=0)
    assert mine(quick, queue=queue, ordinary=1).added == 1
    assert freeze_cases(quick).added == 0
    queue.decide(queue.claim("ann"), "confirm", right_chunks=["1-4"])
    assert freeze_cases(quick).by_origin == {"reviewed": 1}


WORDS = ("refund", "card", "key", "export", "team")
# Neighbors in size are alike, three words and five are not: one question can join two groups.
ORDERS = [order for size in (3, 4, 5) for order in list(permutations(WORDS[:size]))[:3]]
questions = st.sampled_from(ORDERS).map(lambda words: f"How about {' '.join(words)}?")
kinds = st.sampled_from(["review", "review", "click", "import", "freeze", "train"])
steps = st.lists(
    st.tuples(kinds, questions, st.sampled_from([0, 0, 0, 1])), min_size=3, max_size=12
)


@settings(max_examples=25)
@given(steps)
def test_near_duplicates_are_never_on_both_sides_whatever_comes_when_check3(history):
    with FeedbackStore("sqlite://") as store:
        learned = []
        for action, text, at in history:
            _step(store, action, text, at, learned)
        _apart(store, learned)
        freeze_cases(store)
        _apart(store, learned)


def _apart(store, learned):
    """No case is like what is to be taught now; none that counts is like what was."""
    cases = read_cases(store)
    frozen_ = [Splittable(case.key, case.question, case.right) for case in cases]
    now = [_taught(store, group) for group in training_groups(store).groups]
    assert not [(one.question, two.question) for one in frozen_ for two in now if alike(one, two)]
    for keys, taught in learned:
        _never_alike(store, cases, keys, taught)


def _never_alike(store, cases, keys, taught):
    """Of the cases that count, none is like what this ranker learned from."""
    labels = [one for one in reviewed_questions(store) if one.right]
    with reading(store) as connection:
        known = learned_from(connection, store.namespace, cases, labels, keys)
    for case in cases:
        one = Splittable(case.key, case.question, case.right)
        assert case in known or not any(alike(one, other) for other in taught), case.question


def _step(store, action, text, at, learned):
    chunks = pool(1)
    if action == "review":
        trace_id = asked(store, text, chunks, actor="a")
        if not reviewed_before(store, text):
            decide(store, trace_id, text, chunks, [chunks[at].id], failure_class="generation")
    elif action == "click":
        trace_id = asked(store, text, chunks, actor="b")
        said(store, trace_id, "source_click", target=chunks[at])
    elif action == "import":
        rows = [{"question": text, "relevant": [chunks[at].id]}]
        import_cases(store, rows, RunnableLambda(lambda _: chunks))
    elif action == "freeze":
        freeze_cases(store)
    elif groups := training_groups(store).groups:
        record = train_ranker(store, estimator=LinearEstimator(least=1))
        learned.append((set(record.taught), [_taught(store, group) for group in groups]))


def reviewed_before(store, text):
    return any(
        question_key(one.question) == question_key(text) for one in reviewed_questions(store)
    )


def _taught(store, group):
    cells = {one.chunk_id: one.cell_id for one in store.trace(_any_trace(store)).chunks}
    right = frozenset(cells[group.documents[at].id] for at in group.right)
    return Splittable(question_key(group.question), group.question, right)


def _any_trace(store):
    with reading(store) as connection:
        return connection.execute(select(traces.c.trace_id).limit(1)).scalar_one()


# -- questions of one's own


def test_an_imported_question_is_retrieved_once_and_leaves_no_trace(quick):
    seen = []

    def search(text, config):
        seen.append((text, config["metadata"].get(UNRECORDED_KEY)))
        return pool(1)

    rows = [{"question": question(1), "relevant": ["1-2", "elsewhere"]}]
    done = import_cases(quick, rows, RunnableLambda(search), stratum="invoices")
    assert (done.version, done.added, done.by_stratum) == (1, 1, {"invoices": 1})
    assert seen == [(question(1), True)]
    [case] = read_cases(quick)
    assert (case.origin, [one.chunk_id for one in case.relevant]) == (
        "imported", ["1-2", "elsewhere"],
    )  # fmt: skip
    with reading(quick) as connection:
        assert not connection.execute(select(traces)).all()
    again = import_cases(quick, rows, RunnableLambda(search))
    assert (again.version, again.added, again.by_stratum) == (1, 0, {"invoices": 1})


def test_an_import_asks_for_a_whole_pool_and_takes_no_order_but_the_bases(quick):
    asked_for = []

    def search(text, k=4):
        asked_for.append(k)
        return pool(1)

    rows = [{"question": question(1), "relevant": ["1-2"]}]
    import_cases(quick, rows, RunnableLambda(search))
    import_cases(quick, rows, RunnableLambda(search), fetch_k=50)
    assert asked_for == [20, 50]
    learned = FeedbackRetriever(base_retriever=RunnableLambda(search), store=quick)
    with pytest.raises(ValueError, match="Pass the base retriever"):
        import_cases(quick, rows, learned)


def test_an_imported_question_like_a_taught_one_is_left_out_check3(quick):
    for number in range(12):
        reviewed(quick, number)
    train_ranker(quick, estimator=LinearEstimator(least=1))
    taught = training_groups(quick).groups[0]
    chunks, right = list(taught.documents), min(taught.right)
    rows = [{"question": taught.question.upper(), "relevant": [chunks[right].id]}]
    done = import_cases(quick, rows, RunnableLambda(lambda _: chunks))
    assert (done.added, done.left_out) == (0, 1)


@pytest.mark.parametrize(
    "row",
    [{}, {"question": " ", "relevant": ["a"]}, {"question": "How?", "relevant": []},
     {"question": "How?", "relevant": "a"}, {"question": 5, "relevant": ["a"]}],
)  # fmt: skip
def test_a_row_that_lacks_something_is_named_and_nothing_is_frozen(quick, row):
    good = {"question": "How long?", "relevant": ["1-2"]}
    with pytest.raises(ValueError, match="Row 2 needs"):
        import_cases(quick, [good, row], RunnableLambda(lambda _: pool(1)))
    assert read_cases(quick) == []


def test_an_import_and_live_traffic_never_wait_for_each_other_in_a_ring(url):
    chunks = [Document(f"Text {at}.", id=f"d{at}", metadata={"source": "s"}) for at in range(200)]
    rows = [{"question": f"Number {at}?", "relevant": [f"d{at}"]} for at in range(200)]
    found = {one["question"]: [chunks[199 - at]] for at, one in enumerate(rows)}

    def ask():
        chance = random.Random(1)
        with FeedbackStore(url) as other:
            for at in range(100):
                other.record_trace(f"t{at}", f"Asked {at}?", chance.sample(chunks, 60))

    with FeedbackStore(url) as store, ThreadPoolExecutor(1) as threads:
        store.setup()
        asking = threads.submit(ask)
        assert import_cases(store, rows, RunnableLambda(found.__getitem__)).added == 200
        asking.result()


def test_the_same_id_with_two_texts_is_imported_with_both(quick):
    first, second = pool(1), pool(1)
    second[0] = Document("Another text.", id="1-0", metadata={"source": "1.md"})
    found = {question(1): first, question(2): second}
    rows = [{"question": one, "relevant": ["1-2"]} for one in found]
    assert import_cases(quick, rows, RunnableLambda(found.__getitem__)).added == 2
    texts = {case.question: case.pool[0] for case in read_cases(quick)}
    assert [texts[one].text for one in found] == [one[0].page_content for one in found.values()]
    assert texts[question(1)].content_hash != texts[question(2)].content_hash


# -- forgetting


def mined_and_frozen(store, *, people=("ann", "bea")):
    """Several people asked what came to a reviewer, and is a case: the item has one's trace."""
    chunks = pool(7)
    for who in people:
        trace_id = asked(store, question(7), chunks, actor=who, answer="Somewhere.")
        store.rate(trace_id, 1, actor=who)
    queue = ReviewQueue(store, double=0)
    assert mine(store, queue=queue).added == 1
    item = queue.claim("rita")
    queue.decide(
        item, "confirm", right_chunks=["7-2"], failure_class="stale_document",
        correction="In the cellar.",
    )  # fmt: skip
    assert freeze_cases(store).cases == 1
    return queue


def texts_of(store):
    """All that the tables hold of questions, as one text."""
    with reading(store) as connection:
        tables = (eval_cases, review_items, review_events, owner_items, pins, questions_table)
        rows = [tuple(row) for table in tables for row in connection.execute(select(table))]
    return repr(rows)


@pytest.mark.parametrize("order", [("ann", "bea"), ("bea", "ann")])
def test_who_is_forgotten_last_takes_the_question_along_and_it_never_comes_back(store, order):
    queue = mined_and_frozen(store)
    store.forget(order[0])
    assert (freeze_cases(store).cases, len(queue.items(state="decided"))) == (1, 1)
    store.forget(order[1])
    assert (read_cases(store), queue.items()) == ([], [])
    assert freeze_cases(store).cases == 0
    assert question(7) not in texts_of(store)


def test_what_an_owner_has_of_a_question_goes_with_the_last_who_asked_it(store):
    queue = mined_and_frozen(store)
    [item] = queue.items(state="decided")
    first = store.trace(item.trace_id).actor
    with reading(store) as connection:
        [row] = connection.execute(select(owner_items)).all()
    assert (row.question, row.trace_id) == (question(7), item.trace_id)
    store.forget(first)
    with reading(store) as connection:
        [row] = connection.execute(select(owner_items)).all()
    assert (row.question, row.trace_id) == (question(7), None)
    store.forget({"ann": "bea", "bea": "ann"}[first])
    assert question(7) not in texts_of(store)


def test_what_retention_left_no_trace_of_is_no_case_any_more(store):
    mined_and_frozen(store)
    frozen(store, 1, start=50)
    assert store.prune(timedelta(0)).cases == 1
    # The label is there still, and teaches; a case of it would be nobody's to forget.
    assert [label.right for label in reviewed_questions(store)] == [("7-2",)]
    done = freeze_cases(store)
    assert (done.added, done.by_origin) == (0, {"imported": 1})
    # Once somebody asks it again it is his, and goes with him.
    asked(store, question(7), pool(7), actor="zoe")
    store.prune(timedelta(days=1))
    assert freeze_cases(store).by_origin == {"imported": 1, "reviewed": 1}
    store.forget("zoe")
    assert [case.origin for case in read_cases(store)] == ["imported"]


def test_a_reviewed_case_outlives_its_own_trace_while_others_ask(quick):
    mined_and_frozen(quick)
    asked(quick, question(7), pool(7), actor="zoe", at=NOW + timedelta(days=5))
    assert quick.prune(datetime.now(UTC) + timedelta(minutes=1)).cases == 0
    assert [case.question for case in read_cases(quick)] == [question(7)]
    quick.forget("zoe")
    assert (read_cases(quick), freeze_cases(quick).cases) == ([], 0)


def test_a_forgotten_persons_sampled_case_goes_with_its_text(store):
    clicked(store, 1, actor="ann")
    clicked(store, 2, actor="bob")
    freeze_cases(store)
    store.forget("ann")
    assert [case.question for case in read_cases(store)] == [question(2)]
    assert question(1) not in repr(everything(store))


def test_a_question_that_others_asked_too_is_sampled_from_them(quick):
    clicked(quick, 1, actor="bob", at=NOW - timedelta(days=2))
    clicked(quick, 1, actor="ann")
    freeze_cases(quick)
    quick.forget("ann")
    assert read_cases(quick) == []
    assert freeze_cases(quick).added == 1


def test_a_reviewed_case_goes_where_nobody_else_asked_and_stays_nameless_else(quick):
    for number in range(2):
        trace_id = asked(quick, question(number), pool(number), actor="ann", answer="Bad.")
        for name in ("x", "y"):
            quick.rate(trace_id, 1, actor=name)
    for number in range(5):
        quick.rate(asked(quick, f"Fine {number}?", pool(9), actor="z"), 5)
    queue = ReviewQueue(quick, double=0)
    mine(quick, queue=queue)
    while item := queue.claim("rita"):
        queue.decide(item, "confirm", right_chunks=[item.snapshot["chunks"][1]["chunk_id"]])
    # Whichever side the digest puts them on: what is held already stays held.
    frozen(quick, 2, right=1)
    with writing(quick) as (connection, _):
        connection.execute(update(eval_cases).values(retired_at=NOW))
    asked(quick, question(1), pool(1), actor="zoe")
    found = freeze_cases(quick)
    before = {case.question for case in read_cases(quick)}
    quick.forget("ann")
    after = read_cases(quick)
    assert question(0) not in {case.question for case in after}
    assert {case.question for case in after} == before - {question(0)}
    assert all(case.trace_id is None for case in after if case.question == question(1))
    assert found.cases == len(before)


def test_a_forgotten_chunk_leaves_pools_and_takes_the_cases_that_it_answers(quick):
    clicked(quick, 1)
    clicked(quick, 2)
    freeze_cases(quick)
    quick.forget_chunks(["1-0", "2-2"])
    [case] = read_cases(quick)
    assert [bool(chunk.text) for chunk in case.pool] == [False, True, True, True, True]
    assert "Filler1x0" not in repr(everything(quick))
    assert "thing2" not in repr(everything(quick))


def test_prune_takes_retired_cases_and_sampled_ones_whose_trace_is_gone(quick):
    clicked(quick, 1)
    second = clicked(quick, 2)
    frozen(quick, 1, start=5)
    freeze_cases(quick)
    said(quick, second, "thumbs_down")
    freeze_cases(quick)
    assert quick.prune(NOW - timedelta(days=1)).cases == 0
    done = quick.prune(datetime.now(UTC) + timedelta(minutes=1))
    assert done.cases == 2
    assert [case.origin for case in read_cases(quick)] == ["imported"]


def test_another_namespace_keeps_its_cases(quick):
    other = quick.scoped("other")
    clicked(other, 1, actor="ann")
    freeze_cases(other)
    before = everything(quick)
    quick.forget("ann")
    quick.forget_chunks(["1-2"])
    quick.prune(datetime.now(UTC) + timedelta(minutes=1))
    assert freeze_cases(quick).cases == 0
    assert everything(quick) == before
    assert len(read_cases(other)) == 1
