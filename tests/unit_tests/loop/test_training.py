"""From verdicts to a ranker: what teaches, what is kept back, and that it is made once."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_feedback.errors import NotEnoughFeedbackError
from langchain_feedback.loop.finding import find_traces
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.loop.training import train_ranker, training_groups
from langchain_feedback.ranking.estimating import LinearEstimator
from langchain_feedback.ranking.linear import LinearRanker
from langchain_feedback.ranking.views import Candidates
from langchain_feedback.store.learning_schema import eval_cases, ranker_activations, rankers
from langchain_feedback.store.questions import question_key
from langchain_feedback.store.rankers import read_rankers
from langchain_feedback.store.records import TracedChunk
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.loop.kit import asked
from tests.unit_tests.loop.learned import decide, pool_of, reviewed

MANY = 60  # of which about 18 are held out


def filled(store, count=MANY):
    for number in range(count):
        reviewed(store, number)


def rows(store, table):
    with reading(store) as connection:
        return connection.execute(table.select()).all()


def test_thirty_reviewed_questions_make_a_ranker_that_orders_nothing_yet(store):
    filled(store)
    record = train_ranker(store)
    taught = training_groups(store)
    assert (record.kind, record.groups) == ("linear", len(taught.groups))
    assert len(taught.groups) + taught.held_out == MANY
    assert 30 <= len(taught.groups) < MANY
    assert record.taught == taught.keys
    with reading(store) as connection:
        assert read_rankers(connection, store.namespace) == [record]
    assert rows(store, ranker_activations) == []
    # It learned what is right here: the chunk with the question's words.
    ranker = LinearRanker.from_json(record.artifact)
    pool = pool_of(999)
    scores = ranker.score("What is the answer to topic alpha999?", Candidates(range(6), pool))
    assert scores.argmax() == 3


def test_the_same_labels_make_the_same_ranker_once(store):
    filled(store)
    first = train_ranker(store)
    assert train_ranker(store) == first
    assert len(rows(store, rankers)) == 1
    other = train_ranker(store, estimator=LinearEstimator(strength=5.0))
    assert other.ranker_id != first.ranker_id
    for number in range(MANY, MANY + 6):
        reviewed(store, number)
    assert train_ranker(store).ranker_id not in {first.ranker_id, other.ranker_id}


def test_too_few_say_how_many_are_needed(store):
    filled(store, 5)
    with pytest.raises(NotEnoughFeedbackError, match=r"30 reviewed questions .* there are \d"):
        train_ranker(store)
    assert rows(store, rankers) == []


def test_a_question_of_the_cases_teaches_nothing_nor_does_one_like_it(store):
    for number in range(4):
        reviewed(store, number)
    question = "What is the answer to topic alpha1?"
    like = "what's the answer to the topic alpha1"
    reviewed(store, 50, question=like, pool=pool_of(1))
    assert question_key(like) != question_key(question)
    with writing(store) as (connection, _):
        cells = [chunk.cell_id for chunk in store.trace(_trace(store, like)).chunks]
        connection.execute(
            eval_cases.insert().values(
                case_id="e1", namespace=store.namespace, version=1, question=question,
                relevant=json.dumps([{"chunk_id": "q1-3", "cell_id": cells[3]}]), pool="[]",
                origin="imported", stratum="ordinary", frozen_at=datetime.now(UTC),
            )
        )  # fmt: skip
    keys = set(training_groups(store).keys)
    assert not keys & {question_key(question), question_key(like)}


def _trace(store, question):
    return find_traces(store, question, limit=1)[0].trace_id


def test_what_a_verdict_took_back_teaches_nothing(store):
    queue = ReviewQueue(store, double=0)
    reviewed(store, 1, queue=queue)
    before = len(training_groups(store).groups) + training_groups(store).held_out
    queue.undo("ann")
    after = training_groups(store)
    assert (before, len(after.groups) + after.held_out) == (1, 0)


def test_of_two_verdicts_on_one_question_the_newer_teaches(store):
    reviewed(store, 1)
    other = [*pool_of(1)[:5], Document("New.", id="new", metadata={"source": "1.md"})]
    reviewed(store, 1, pool=other, right=5)
    taught = training_groups(store)
    assert len(taught.groups) + taught.held_out == 1
    for group in taught.groups:
        assert [group.documents[at].id for at in group.right] == ["new"]


def test_a_right_chunk_outside_the_pool_and_none_at_all_teach_nothing(store):
    for number in range(8):
        pool = pool_of(number)
        question = f"What is the answer to topic alpha{number}?"
        trace_id = asked(store, question, pool[:5], actor="u")
        asked(store, f"Other {number}?", [pool[5]])
        decide(store, trace_id, question, pool, [pool[5].id])
        reviewed(store, 100 + number, right=None)
    taught = training_groups(store)
    assert taught.groups == ()
    assert taught.outside + taught.held_out == 8
    assert taught.outside > 0


def test_titles_teach_as_a_retriever_gives_them(store):
    reviewed(store, 1)
    for group in training_groups(store).groups:
        assert group.documents[2].metadata["title"] == "Part 2"
    # Where the chunk has another text now, what was reviewed counts.
    asked(store, "Again?", [Document("Changed.", id="q1-2", metadata={"title": "Another"})])
    for group in training_groups(store).groups:
        assert group.documents[2].metadata.get("title") is None


def test_chunks_that_the_base_did_not_find_stand_outside_its_order(store):
    pool = pool_of(1)
    chunks = [TracedChunk(pool[5], 0, None, "pinned")]
    chunks += [TracedChunk(one, at + 1, at) for at, one in enumerate(pool[:5])]
    for number in range(6):
        question = f"Question {number} of topic?"
        trace_id = asked(store, question, chunks, actor="u")
        decide(store, trace_id, question, pool, [pool[3].id])
    groups = training_groups(store).groups
    assert groups
    for group in groups:
        assert list(group.base_rank) == [0, 1, 2, 3, 4, -1]
        assert [group.documents[at].id for at in group.right] == ["q1-3"]


def test_namespaces_learn_apart(store):
    filled(store)
    other = store.scoped("other")
    with pytest.raises(NotEnoughFeedbackError):
        train_ranker(other)
    first = train_ranker(store)
    for number in range(MANY):
        reviewed(other, number)
    assert train_ranker(other).ranker_id != first.ranker_id


@dataclass(frozen=True)
class Backwards:
    """An estimator that is not ours."""

    kind: str = "backwards"
    least: int = 2
    settings: dict = field(default_factory=lambda: {"way": "back"})

    def fit(self, groups, words):
        assert all(group.teaches for group in groups)
        assert words.weights
        return self

    def score(self, question, candidates):
        return np.asarray(candidates.base_rank, float)

    def to_json(self):
        return json.dumps(self.settings)


def test_any_estimator_fits_in(store):
    for number in range(8):
        reviewed(store, number)
    record = train_ranker(store, estimator=Backwards())
    assert (record.kind, json.loads(record.artifact)) == ("backwards", {"way": "back"})


def test_an_estimator_that_fails_leaves_nothing(store):
    class Fails(Backwards):
        def fit(self, groups, words):
            raise OSError(28, "disk full")

    for number in range(8):
        reviewed(store, number)
    with pytest.raises(OSError, match="disk full"):
        train_ranker(store, estimator=Fails())
    assert rows(store, rankers) == []
