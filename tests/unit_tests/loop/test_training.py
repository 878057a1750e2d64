"""From verdicts to a ranker: what teaches, what is kept back, and that it is made once."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from langchain_feedback import FeedbackStore
from langchain_feedback.errors import ArtifactError, NotEnoughFeedbackError, RankerError
from langchain_feedback.loop.finding import find_traces
from langchain_feedback.loop.job import loader_of
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.loop.training import train_ranker, training_groups
from langchain_feedback.ranking.estimating import LinearEstimator
from langchain_feedback.ranking.linear import LinearRanker
from langchain_feedback.ranking.loading import load_ranker
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


def test_what_was_added_to_a_pool_teaches_nothing(store):
    """In use a ranker sees what the base found, before anything is added."""
    pool = pool_of(1)
    added = [TracedChunk(pool[5], 0, None, "pinned"), TracedChunk(pool[4], 1, None, "injected")]
    chunks = [*added, *(TracedChunk(one, at + 2, at) for at, one in enumerate(pool[:4]))]
    for number in range(12):
        question = f"Question {number} of topic?"
        trace_id = asked(store, question, chunks, actor="u")
        decide(store, trace_id, question, pool, [pool[3 if number % 2 else 5].id])
    taught = training_groups(store)
    assert taught.groups
    assert taught.outside
    for group in taught.groups:
        assert list(group.base_rank) == [0, 1, 2, 3]
        assert [group.documents[at].id for at in group.right] == ["q1-3"]


def test_a_newer_verdict_that_no_document_answers_ends_the_older_label(store):
    for number in range(8):
        reviewed(store, number)
    before = len(training_groups(store).groups)
    for number in range(8):
        pool = [*pool_of(number)[:5], Document(f"New {number}.", id=f"new-{number}")]
        reviewed(store, number, pool=pool, right=None)
    assert before
    assert training_groups(store).groups == ()


def test_near_duplicates_stay_together_when_the_embedder_changes(tmp_path):
    """Vectors of two models do not compare; then the words decide, on both sides alike."""
    old = DeterministicFakeEmbedding(size=8)
    new = DeterministicFakeEmbedding(size=16)
    wordings = ("What is the answer to topic alpha{}?", "what's the answer to the topic alpha{}")
    for embeddings, wording in zip((old, new), wordings, strict=True):
        with FeedbackStore(f"sqlite:///{tmp_path}/f.db", embeddings=embeddings) as store:
            for number in range(20):
                reviewed(store, number, question=wording.format(number), pool=pool_of(number))
    with FeedbackStore(f"sqlite:///{tmp_path}/f.db", embeddings=new) as store:
        keys = set(training_groups(store).keys)
    for number in range(20):
        pair = [question_key(wording.format(number)) in keys for wording in wordings]
        assert pair[0] == pair[1]


class Versioned:
    """A feature that is made anew under its old name."""

    def __init__(self, version):
        self.version = version

    def __call__(self, question, documents):
        return [float(at) for at, _ in enumerate(documents)]


def test_another_version_of_a_feature_makes_another_ranker_and_is_refused_by_the_old_one(store):
    filled(store, 20)
    made = {
        name: train_ranker(
            store, estimator=LinearEstimator(extra_features={"model": Versioned(name)}, least=5)
        )
        for name in ("1", "2")
    }
    assert made["1"].ranker_id != made["2"].ranker_id
    load_ranker("linear", made["1"].artifact, extra_features={"model": Versioned("1")})
    with pytest.raises(ArtifactError, match="version '1' of the feature 'model'"):
        load_ranker("linear", made["1"].artifact, extra_features={"model": Versioned("2")})


def test_nothing_is_counted_where_nothing_is_new(store, monkeypatch):
    filled(store)
    first = train_ranker(store)
    monkeypatch.setattr("langchain_feedback.loop.training._texts", None)
    assert train_ranker(store) == first


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


@pytest.mark.parametrize(
    ("name", "method", "said"),
    [
        pytest.param("to_json", lambda self: {"way": "back"}, "must return a text", id="a dict"),
        pytest.param("score", lambda self, question, pool: [1.0], "one finite number", id="one"),
        pytest.param(
            "score",
            lambda self, question, pool: [len(one) for one in pool],
            "is no ranker",
            id="iterates",
        ),
    ],
)
def test_what_cannot_order_a_pool_is_not_kept(store, name, method, said):
    for number in range(8):
        reviewed(store, number)
    broken = type("Broken", (Backwards,), {name: method})
    with pytest.raises(RankerError, match=said):
        train_ranker(store, estimator=broken())
    assert rows(store, rankers) == []


def test_an_estimators_own_load_reads_its_rankers_and_no_others(store):
    class Loads(Backwards):
        def load(self, artifact):
            return json.loads(artifact)

    for number in range(8):
        reviewed(store, number)
    mine = train_ranker(store, estimator=Loads())
    linear = train_ranker(store, estimator=LinearEstimator(least=2))
    load = loader_of(Loads())
    assert load(mine) == {"way": "back"}
    assert isinstance(load(linear), LinearRanker)
    assert loader_of(LinearEstimator()) is None
    assert loader_of(None) is None


def test_an_estimator_that_fails_leaves_nothing(store):
    class Fails(Backwards):
        def fit(self, groups, words):
            raise OSError(28, "disk full")

    for number in range(8):
        reviewed(store, number)
    with pytest.raises(OSError, match="disk full"):
        train_ranker(store, estimator=Fails())
    assert rows(store, rankers) == []
