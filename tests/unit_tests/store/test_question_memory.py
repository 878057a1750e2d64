"""The nearest past questions: exact, or nearly so above a number of questions."""

import logging
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.store.memory.hnsw import Hnsw
from langchain_feedback.store.memory.question_memory import MemoryChanges, QuestionMemory

DIMENSION = 8


def changes(vectors, ids=None, *, epoch=1, seq=None):
    vectors = np.asarray(vectors, np.float32)
    ids = np.arange(len(vectors)) if ids is None else np.asarray(ids, np.int64)
    return MemoryChanges(epoch, len(ids) if seq is None else seq, ids, vectors)


def filled(vectors, ids=None, **options):
    memory = QuestionMemory(**options)
    memory.refresh(lambda after_seq: changes(vectors, ids))
    return memory


def clustered(number, dimension=32, seed=0, width=0.25):
    """Unit vectors around 50 centers, as questions around topics."""
    generator = np.random.default_rng(seed)
    centers = np.random.default_rng(99).standard_normal((50, dimension))
    noise = generator.standard_normal((number, dimension)) * width
    return unit(centers[generator.integers(50, size=number)] + noise).astype(np.float32)


def unit(vectors):
    vectors = np.asarray(vectors, np.float64)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def exact(known, query):
    """The cosine of each question that can be found, in double precision."""
    query = unit(query)
    return {
        question: float(unit(vector) @ query)
        for question, vector in known.items()
        if np.isfinite(vector).all() and np.any(vector)
    }


def assert_nearest(hits, known, query, *, limit=32, minimum=0.0):
    """Nothing is missing, nothing too much, and the order is right, to a millionth."""
    cosines, found = exact(known, query), dict(hits)
    assert hits == sorted(hits, key=lambda hit: (-hit[1], hit[0]))
    assert len(found) == len(hits) <= limit
    assert all(minimum <= cosine <= 1 for cosine in found.values())
    assert found == {question: pytest.approx(cosines[question], abs=1e-6) for question in found}
    least = hits[-1][1] if len(hits) == limit else minimum
    missed = cosines.keys() - found.keys()
    assert all(cosines[question] <= least + 1e-6 for question in missed)
    # Of equal vectors the lower question ids are the ones returned.
    highest = {np.asarray(known[question]).tobytes(): question for question in sorted(found)}
    if len(hits) == limit:
        keys = {question: np.asarray(known[question]).tobytes() for question in missed}
        assert all(question > highest.get(key, -1) for question, key in keys.items())


# Few different numbers, so that equal vectors, zero vectors and ties are common.
numbers = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 3.0]) | st.floats(-10, 10, width=32)
vectors = st.one_of(
    st.lists(numbers, min_size=DIMENSION, max_size=DIMENSION),
    st.just([0.0] * DIMENSION),
    st.just([float("nan")] * DIMENSION),
)
batches = st.lists(st.lists(st.tuples(st.integers(0, 12), vectors), max_size=10), max_size=6)


@given(
    batches=batches,
    query=st.lists(numbers, min_size=DIMENSION, max_size=DIMENSION),
    limit=st.integers(1, 15),
    minimum=st.sampled_from([-1.0, 0.0, 0.5, 0.9]),
)
def test_search_equals_a_comparison_with_every_question(batches, query, limit, minimum):
    memory, known = QuestionMemory(), {}
    for seq, batch in enumerate(batches, start=1):
        known |= dict(batch)
        ids, rows = [i for i, _ in batch], [v for _, v in batch]
        found = changes(rows or np.empty((0, 0)), ids, seq=seq)
        memory.refresh(lambda _, found=found: found)
    hits = memory.search(query, limit=limit, minimum=minimum)
    if not any(query):
        assert hits == []
        return
    assert_nearest(hits, known, query, limit=limit, minimum=minimum)


def test_equal_vectors_are_ordered_by_question_id_wherever_they_stand():
    vectors = clustered(3000)
    ids = np.random.default_rng(1).permutation(3000)
    same = np.random.default_rng(2).choice(3000, size=100, replace=False)
    vectors[same] = vectors[0]
    hits = filled(vectors, ids).search(vectors[0], limit=50)
    assert [question for question, _ in hits] == sorted(ids[[0, *same]].tolist())[:50]
    assert len({cosine for _, cosine in hits}) == 1


def test_the_length_of_vectors_does_not_matter_even_where_squares_overflow():
    memory = filled([[3e30, 4e30], [1e-30, 0.0]])
    assert memory.search([1e300, 0.0]) == [(1, 1.0), (0, pytest.approx(0.6))]


def test_a_zero_or_nan_vector_finds_nothing_and_is_never_found():
    memory = filled([[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [1.0, 0.0]])
    assert len(memory) == 1
    assert memory.search([1.0, 0.0], minimum=-1.0) == [(3, 1.0)]
    assert memory.search([0.0, 0.0], minimum=-1.0) == []
    assert memory.search([float("nan"), 1.0], minimum=-1.0) == []


def test_a_vector_of_another_dimension_is_refused():
    memory = filled(np.eye(3))
    with pytest.raises(ValueError, match=r"shape \(4,\).*\(3,\).*embedding model"):
        memory.search(np.ones(4))
    with pytest.raises(ValueError, match="4 numbers, those held have 3"):
        memory.refresh(lambda _: changes(np.eye(4)))
    assert len(memory.search([1.0, 0.0, 0.0])) == 3  # as before
    memory.refresh(lambda _: changes(np.eye(4), epoch=2))
    assert len(memory.search(np.ones(4))) == 4


@pytest.mark.parametrize("rows", [np.ones((2, 3)), np.ones(3), np.ones((3, 0))])
def test_vectors_that_do_not_fit_the_ids_are_refused(rows):
    with pytest.raises(ValueError, match=r"3 questions need vectors of shape \(3, D\)"):
        QuestionMemory().refresh(lambda _: changes(rows, [1, 2, 3]))


def test_senseless_settings_are_refused():
    with pytest.raises(ValueError, match="hnsw_above must be at least 0, got -1"):
        QuestionMemory(hnsw_above=-1)
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        QuestionMemory().search([1.0], limit=0)


def test_an_empty_memory_finds_nothing():
    memory = QuestionMemory()
    memory.refresh(lambda _: changes(np.empty((0, 0))))
    assert memory.search([1.0, 2.0]) == []


def test_refresh_reads_on_from_where_it_was_and_anew_after_another_epoch():
    log = [changes(np.eye(3), [1, 2, 3], seq=3), changes([[0.0, 1.0, 1.0]], [4], seq=4)]
    asked = []

    def read(after_seq):
        asked.append(after_seq)
        return log[len(asked) - 1]

    memory = QuestionMemory()
    memory.refresh(read)
    memory.refresh(read)
    assert (asked, len(memory)) == ([0, 3], 4)
    log += [
        changes(np.eye(3)[:1], [9], epoch=2, seq=9),  # what came after 4, in another epoch
        changes(np.eye(3)[:2], [8, 9], epoch=2, seq=9),  # all of it
    ]
    memory.refresh(read)
    assert asked == [0, 3, 4, 0]
    assert memory.search([1.0, 0.0, 0.0], minimum=-1) == [(8, 1.0), (9, 0.0)]


def test_a_read_that_fails_leaves_everything_as_it_was():
    memory = filled(np.eye(2))

    def broken(after_seq):
        msg = f"no database after {after_seq}"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="no database after 2"):
        memory.refresh(broken)
    assert memory.search([1.0, 0.0], minimum=0.5) == [(0, 1.0)]


def recall(memory, known, queries, limit=32):
    found = best = 0
    for query in queries:
        cosines = exact(known, query)
        nearest = set(sorted(cosines, key=cosines.get, reverse=True)[:limit])
        found += len(nearest & {question for question, _ in memory.search(query, limit=limit)})
        best += len(nearest)
    return found / best


def test_above_its_number_the_graph_finds_nearly_all_and_cosines_are_exact():
    pytest.importorskip("faiss", reason="the extra faiss is missing")
    rows = clustered(4000)
    memory = filled(rows, hnsw_above=500)
    assert memory.wait_for_index(60)
    assert memory.indexed == 4000
    known, queries = dict(enumerate(rows)), clustered(40, seed=5)
    assert recall(memory, known, queries) >= 0.95
    hits = memory.search(queries[0], limit=10)
    assert_nearest(hits, known, queries[0], limit=10)
    assert memory.search(queries[0], limit=10, minimum=hits[4][1]) == hits[:5]


def test_many_equal_vectors_hide_nobody_from_the_graph():
    pytest.importorskip("faiss", reason="the extra faiss is missing")
    rows = clustered(4000)
    for group in range(10):  # texts cut off after the same first words, say
        rows[1000 + 200 * group : 1200 + 200 * group] = rows[group]
    memory = filled(rows, hnsw_above=500)
    assert memory.wait_for_index(60)
    assert (len(memory), memory.indexed) == (4000, 4000)
    known, generator = dict(enumerate(rows)), np.random.default_rng(7)
    for group in range(10):
        query = rows[group] + 0.02 * generator.standard_normal(32)
        assert_nearest(memory.search(query, limit=20), known, query, limit=20)


def test_below_its_number_there_is_no_graph():
    memory = filled(clustered(500), hnsw_above=500)
    assert memory.wait_for_index(0)
    assert memory.indexed == 0


def test_what_comes_after_the_graph_is_found_at_once_and_joins_it_later():
    pytest.importorskip("faiss", reason="the extra faiss is missing")
    rows = clustered(3000)
    memory = filled(rows[:1000], hnsw_above=500)
    assert memory.wait_for_index(60)
    for end in range(1100, 3001, 100):
        new = changes(rows[end - 100 : end], range(end - 100, end), seq=end)
        memory.refresh(lambda _, new=new: new)
        assert memory.search(rows[end - 1], limit=1)[0][0] == end - 1
    assert memory.wait_for_index(60)
    assert 2500 <= memory.indexed <= 3000
    assert recall(memory, dict(enumerate(rows)), clustered(20, seed=5)) >= 0.95


def test_a_question_with_a_new_vector_is_found_there_alone():
    pytest.importorskip("faiss", reason="the extra faiss is missing")
    rows = clustered(2000)
    memory = filled(rows, hnsw_above=500)
    assert memory.wait_for_index(60)
    # One question again and again at nearly the same place: the graph's best hits are stale.
    for turn in range(1200):
        near = rows[0] + 1e-4 * (turn + 1) * rows[1]
        memory.refresh(lambda _, near=near, turn=turn: changes([near], [0], seq=2000 + turn))
    memory.refresh(lambda _: changes([-rows[0]], [0], seq=5000))
    assert memory.wait_for_index(60)
    assert len(memory) == 2000
    hits = memory.search(rows[0], limit=20, minimum=-1.0)
    known = dict(enumerate(rows)) | {0: -rows[0]}
    assert_nearest(hits, known, rows[0], limit=20, minimum=-1.0)
    assert memory.search(-rows[0], limit=1) == [(0, pytest.approx(1.0))]


def test_rows_that_are_read_again_take_no_room():
    rows = clustered(100)
    memory = filled(rows, hnsw_above=150)
    for _ in range(10):
        memory.refresh(lambda _: changes(rows))
    assert memory.wait_for_index(60)
    assert (len(memory), memory.indexed) == (100, 0)


def test_many_replaced_vectors_are_cleared_away():
    memory, generator = filled(clustered(3000), hnsw_above=10**6), np.random.default_rng(3)
    for turn in range(4):
        rows = clustered(3000, seed=turn + 10)
        memory.refresh(lambda _, rows=rows: changes(rows))
    query = generator.standard_normal(32)
    assert_nearest(memory.search(query), dict(enumerate(rows)), query)


def test_without_faiss_the_search_stays_exact_and_says_so_once(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "faiss", None)
    rows = clustered(700)
    with caplog.at_level(logging.WARNING):
        memory = filled(rows, hnsw_above=500)
        for end in range(5):
            memory.refresh(lambda _, end=end: changes(rows[:1], [1000 + end], seq=1000 + end))
            assert memory.wait_for_index(10)
    assert memory.indexed == 0
    assert [
        record.getMessage().count("langchain-feedback[faiss]") for record in caplog.records
    ] == [1]
    query = clustered(1, seed=5)[0]
    known = dict(enumerate(rows)) | {1000 + end: rows[0] for end in range(5)}
    assert_nearest(memory.search(query), known, query)


class Moving:
    """A table that grows at each read while its even questions jump to and fro."""

    def __init__(self, rows, start):
        self.rows, self.seq, self.lock = rows, start, threading.Lock()
        self.jumping = np.arange(0, start, 2)

    def read(self, after_seq):
        with self.lock:
            self.seq = min(self.seq + 7, len(self.rows))
            ids = np.arange(after_seq, self.seq)
            jumped = self.rows[self.jumping] * (1 if self.seq % 2 else -1)
            vectors = np.concatenate([self.rows[ids], jumped])
            return changes(vectors, np.concatenate([ids, self.jumping]), seq=self.seq)

    def wrong(self, memory, question):
        """What is not so in the neighborhood of a question that stays where it is."""
        hits = dict(memory.search(self.rows[question], limit=5, minimum=-1.0))
        expected = {hit: abs(float(self.rows[hit] @ self.rows[question])) for hit in hits}
        right = hits == {hit: pytest.approx(c, abs=1e-5) for hit, c in expected.items()}
        return [] if right and question in hits and len(hits) == 5 else [(question, hits)]


def held_up(monkeypatch):
    """Make the building of graphs begin (the first event) and wait (for the second)."""
    begun, go_on, add = threading.Event(), threading.Event(), Hnsw.add

    def slow(graph, vectors, rows):
        begun.set()
        assert go_on.wait(30)
        add(graph, vectors, rows)

    monkeypatch.setattr(Hnsw, "add", slow)
    return begun, go_on


def test_nothing_waits_for_a_graph_that_is_being_built(monkeypatch):
    pytest.importorskip("faiss", reason="the extra faiss is missing")
    begun, go_on = held_up(monkeypatch)
    rows = clustered(1000)
    memory = filled(rows[:600], hnsw_above=500)
    assert begun.wait(30)
    memory.refresh(lambda _: changes(rows[600:], range(600, 1000), seq=1000))
    assert_nearest(memory.search(rows[900]), dict(enumerate(rows)), rows[900])
    assert (memory.wait_for_index(0), memory.indexed) == (False, 0)
    go_on.set()
    assert memory.wait_for_index(60)
    assert memory.indexed == 1000  # what came meanwhile is in it


def test_a_graph_of_another_epoch_is_not_used(monkeypatch):
    pytest.importorskip("faiss", reason="the extra faiss is missing")
    begun, go_on = held_up(monkeypatch)
    memory, rows = filled(clustered(600), hnsw_above=500), clustered(700, dimension=16)
    assert begun.wait(30)
    memory.refresh(lambda _: changes(rows, epoch=2))
    go_on.set()
    assert memory.wait_for_index(60)
    assert memory.indexed == 700
    assert_nearest(memory.search(rows[5], limit=3), dict(enumerate(rows)), rows[5], limit=3)


def test_a_graph_that_cannot_be_built_costs_no_answer(monkeypatch, caplog):
    def broken(graph, vectors, rows):
        msg = "no memory for a graph"
        raise MemoryError(msg)

    pytest.importorskip("faiss", reason="the extra faiss is missing")
    monkeypatch.setattr(Hnsw, "add", broken)
    rows = clustered(600)
    memory = filled(rows, hnsw_above=500)
    assert memory.wait_for_index(60)
    memory.refresh(lambda _: changes(rows))
    assert [record.getMessage()[:27] for record in caplog.records] == [
        "No graph of past questions:"
    ]
    assert_nearest(memory.search(rows[5]), dict(enumerate(rows)), rows[5])


@pytest.mark.parametrize("hnsw_above", [100, 10**6])
def test_searches_are_right_while_others_refresh(hnsw_above):
    table = Moving(clustered(3000), 200)
    memory = filled(table.rows[:200], hnsw_above=hnsw_above)
    done, wrong = threading.Event(), []

    def write():
        while table.seq < 3000:
            memory.refresh(table.read)

    def search(question):
        while not done.is_set():
            wrong.extend(table.wrong(memory, question))
            question = (question + 2) % 200

    writers = [threading.Thread(target=write) for _ in range(2)]
    readers = [threading.Thread(target=search, args=(odd,)) for odd in (1, 51, 101)]
    for thread in [*writers, *readers]:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert memory.wait_for_index(60)
    assert wrong == []
    assert len(memory) == 3000


def test_a_closed_memory_builds_nothing_and_still_answers():
    memory = filled(clustered(20_000, dimension=64), hnsw_above=500)
    memory.close()
    memory.close()
    assert memory.wait_for_index(0)
    memory.refresh(lambda _: changes(clustered(100, dimension=64), range(20_000, 20_100)))
    assert memory.wait_for_index(0)
    assert memory.indexed == 0
    assert len(memory.search(np.ones(64), minimum=-1.0)) == 32


def test_the_interpreter_ends_cleanly_while_a_graph_is_built():
    pytest.importorskip("faiss", reason="the extra faiss is missing")
    program = """if True:
        import time
        import numpy as np
        from langchain_feedback.store.memory.question_memory import MemoryChanges, QuestionMemory
        rows = np.random.default_rng(0).standard_normal((60_000, 128)).astype(np.float32)
        memory = QuestionMemory(hnsw_above=500)
        memory.refresh(lambda _: MemoryChanges(1, 1, np.arange(len(rows)), rows))
        time.sleep(0.5)
        print(memory.wait_for_index(0))
    """
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "False\n", "")


def test_questions_that_come_topic_by_topic_are_found_all_the_same():
    """A log that is sorted by topic: a graph built in that order would miss whole topics."""
    random = np.random.default_rng(7)
    centers = random.standard_normal((150, 64))
    rows = np.repeat(centers, 40, axis=0) + 0.15 * random.standard_normal((6_000, 64))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    memory = QuestionMemory(hnsw_above=500)
    changes = MemoryChanges(epoch=0, seq=1, question_ids=np.arange(6_000), vectors=rows)
    memory.refresh(lambda _: changes)
    assert memory.wait_for_index(60)
    found = [memory.search(rows[at], limit=32) for at in range(0, 6_000, 60)]
    for at, near in zip(range(0, 6_000, 60), found, strict=True):
        nearest = np.sort(rows @ rows[at])[-32:]
        assert sum(cosine >= nearest[0] - 1e-5 for _, cosine in near) >= 30


def test_a_database_that_is_put_back_is_read_anew():
    memory = filled(np.eye(3))
    memory.refresh(lambda after: changes(np.eye(3)[:1], [7], seq=1))
    assert [question for question, _ in memory.search([1, 1, 1])] == [7]
