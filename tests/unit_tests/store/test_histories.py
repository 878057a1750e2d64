"""Random histories: what is kept step by step is what a rebuild finds, bit for bit."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from sqlalchemy import select, update

from langchain_feedback.errors import UnknownChunkError, UnknownTraceError
from langchain_feedback.store import schema
from langchain_feedback.store.feedback_store import FeedbackStore

CHUNKS = [Document(f"Text {name}.", id=name) for name in "abcd"]
TRACES = ["t0", "t1", "t2", "t3"]
ACTORS = [None, "ann", "bob"]

traces = st.sampled_from(TRACES)
targets = st.one_of(st.none(), st.sampled_from([chunk.id for chunk in CHUNKS]))
names = st.sampled_from(
    ["thumbs_up", "thumbs_down", "source_click", "source_skipped", "copy", "regenerate"]
)
some_chunks = st.lists(st.sampled_from(CHUNKS), unique_by=lambda chunk: chunk.id)

steps = st.one_of(
    st.tuples(st.just("search"), traces, some_chunks, st.sampled_from([1, 2]), st.booleans()),
    st.tuples(
        st.just("rate"), traces, st.integers(1, 5), targets, st.sampled_from(ACTORS), st.booleans()
    ),
    st.tuples(st.just("signal"), traces, names, targets, st.sampled_from(ACTORS), st.booleans()),
    st.tuples(st.just("retract"), st.integers(0, 30)),
    st.tuples(
        st.just("update"), traces, some_chunks, some_chunks, st.sampled_from([None, True, False])
    ),
    st.tuples(st.just("age"), st.integers(1, 200)),
)


class History:
    """Applies steps to a store; steps that cannot be are refused and change nothing."""

    def __init__(self, store):
        self.store, self.events = store, []

    def search(self, trace_id, chunks, attempt, anonymous):
        question = f"Question {int(trace_id[1]) % 2}?"
        actor = None if anonymous else "ann"
        self.store.record_trace(trace_id, question, chunks, attempt=attempt, actor=actor)

    def rate(self, trace_id, rating, target, actor, pending):
        self.events.append(
            self.store.rate(trace_id, rating, target=target, actor=actor, pending=pending)
        )

    def signal(self, trace_id, name, target, actor, pending):
        self.events.append(
            self.store.signal(trace_id, name, target=target, actor=actor, pending=pending)
        )

    def retract(self, number):
        if number < len(self.events):
            self.store.retract(self.events[number])

    def update(self, trace_id, in_prompt, cited, grounded):
        grades = {chunk.id: "yes" for chunk in cited[:1]}
        self.store.update_trace(
            trace_id, in_prompt=in_prompt, cited=cited, grounded=grounded, grades=grades
        )

    def age(self, days):
        """Make what happened so far older: votes do not all come at one time."""
        with self.store._writing() as (connection, _):
            for table, column in ((schema.signals, "received_at"), (schema.credits_, "voted_at")):
                for row in connection.execute(select(table)).mappings().all():
                    key = [c == row[c.name] for c in table.primary_key.columns]
                    older = row[column] - timedelta(days=days)
                    connection.execute(update(table).where(*key).values({column: older}))
        self.store.rebuild_evidence()


def tables(store):
    with store._reading() as connection:
        return [
            sorted(tuple(row) for row in connection.execute(select(table)))
            for table in (schema.evidence, schema.credits_)
        ]


@settings(max_examples=60)
@given(st.lists(steps, max_size=30), st.sampled_from([None, 30.0]))
def test_step_by_step_is_what_a_rebuild_finds_bit_for_bit(history, half_life):
    with FeedbackStore("sqlite://", half_life_days=half_life) as store:
        run = History(store)
        for name, *arguments in history:
            try:
                getattr(run, name)(*arguments)
            except (UnknownTraceError, UnknownChunkError, ValueError):
                continue
        before = tables(store)
        store.rebuild_evidence()
        assert tables(store) == before


votes = st.tuples(
    st.sampled_from(["ann", "bob", "eve"]), st.sampled_from([1, 2, 3, 4, 5]), st.sampled_from("ab")
)


@given(st.lists(votes, max_size=8, unique_by=lambda vote: (vote[0], vote[2])), st.randoms())
def test_the_order_of_votes_with_different_keys_does_not_matter(given_votes, random):
    shuffled = random.sample(given_votes, len(given_votes))
    results = []
    for order in (given_votes, shuffled):
        with FeedbackStore("sqlite://", half_life_days=None) as store:
            store.record_trace("t1", "Question?", CHUNKS[:2])
            for actor, rating, target in order:
                store.rate("t1", rating, target=target, actor=actor)
            cells = store.evidence_for("Question?").cells
            results.append(sorted((c.key, c.positive, c.negative) for c in cells))
    assert results[0] == results[1]


@settings(max_examples=20)
@given(st.lists(st.sampled_from([1, 2, 4, 5]), min_size=1, max_size=60))
def test_a_thousand_votes_of_one_actor_count_as_his_newest(ratings):
    with FeedbackStore("sqlite://", half_life_days=None) as store:
        for number, rating in enumerate(ratings):
            store.record_trace(f"t{number}", "Question?", CHUNKS[:1])
            store.rate(f"t{number}", rating, target="a", actor="ann")
        [cell] = store.evidence_for("Question?").cells
        assert (cell.positive, cell.negative) == ((1, 0) if ratings[-1] > 3 else (0, 1))


@pytest.mark.parametrize("seed", range(3))
def test_a_rebuild_finds_the_same_on_postgres_too(postgres_url, seed):
    chance = Random(seed)
    with FeedbackStore(postgres_url, half_life_days=30) as store:
        run = History(store)
        for number in range(120):
            trace_id = chance.choice(TRACES)
            try:
                match number % 5:
                    case 0:
                        run.search(trace_id, chance.sample(CHUNKS, 3), chance.choice([1, 2]), None)
                    case 1 | 2:
                        run.rate(
                            trace_id, chance.randint(1, 5), chance.choice([None, "a", "b"]),
                            chance.choice(ACTORS), chance.choice([True, False]),
                        )  # fmt: skip
                    case 3:
                        run.update(trace_id, CHUNKS[:2], CHUNKS[:1], None)
                    case _:
                        run.retract(chance.randint(0, 30))
            except (UnknownTraceError, UnknownChunkError):
                continue
        before = tables(store)
        assert before[0]
        store.rebuild_evidence()
        assert tables(store) == before
        assert all(row[-1] <= datetime.now(UTC) for row in before[0])
