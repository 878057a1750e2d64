"""Counters and histograms of a store, read back from a real OpenTelemetry SDK."""

import asyncio
import subprocess
import sys

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from langchain_feedback import FeedbackRetriever, FeedbackStore
from langchain_feedback.errors import UnknownTraceError
from langchain_feedback.integrations.telemetry import instrument
from langchain_feedback.store.inbox.events import Incoming

pytest.importorskip("opentelemetry.sdk.metrics", reason="opentelemetry-sdk is not installed")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

CHUNKS = [Document(f"Chunk {number}.", id=f"c{number}") for number in range(3)]


class Counted:
    """A provider, and what was counted with it."""

    def __init__(self):
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def points(self, name):
        data = self._reader.get_metrics_data()
        found = [] if data is None else [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == f"langchain_feedback.{name}"
        ]  # fmt: skip
        return [point for metric in found for point in metric.data.data_points]

    def sums(self, name, *labels):
        return {
            tuple(point.attributes.get(label) for label in labels): point.value
            for point in self.points(name)
        }

    def counts(self, name, *labels):
        return {
            tuple(point.attributes.get(label) for label in labels): (point.count, point.sum)
            for point in self.points(name)
        }


@pytest.fixture
def counted():
    return Counted()


@pytest.fixture
def store(tmp_path, counted):
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}") as opened:
        yield instrument(opened, meter_provider=counted.provider)


def test_signals_and_ratings_are_counted_once_they_are_kept(store, counted):
    store.record_trace("t1", "How long?", CHUNKS)
    store.rate("t1", 5)
    store.rate("t1", 2, target=CHUNKS[0])
    store.signal("t1", "copy")
    with pytest.raises(UnknownTraceError):
        store.rate("gone", 5)
    assert counted.sums("signals", "signal", "outcome") == {
        ("rating", "accepted"): 2, ("copy", "accepted"): 1,
    }  # fmt: skip
    assert counted.counts("ratings", "target") == {("answer",): (1, 5), ("source",): (1, 2)}
    failed = counted.counts("store.duration", "operation", "error.type")
    assert failed["rate", "UnknownTraceError"][0] == 1
    assert failed["rate", None][0] == 2


def test_what_clients_send_is_counted_by_what_became_of_it(store, counted):
    store.record_trace("t1", "How long?", CHUNKS)
    vote = Incoming("e1", "t1", "rating", rating=4, actor="ann")
    sent = [
        vote,
        Incoming("e2", "gone", "thumbs_up"),
        Incoming("e3", "t1", "whatever a client thinks of"),
    ]
    assert [one.status for one in store.receive(sent)] == ["accepted", "pending", "rejected"]
    assert [one.status for one in store.receive([vote])] == ["duplicate"]
    assert counted.sums("signals", "signal", "outcome") == {
        ("rating", "accepted"): 1, ("thumbs_up", "pending"): 1, ("unknown", "rejected"): 1,
        ("rating", "duplicate"): 1,
    }  # fmt: skip
    assert counted.counts("ratings", "target") == {("answer",): (1, 4)}


def test_searches_and_answers_of_a_retriever_that_knows_nothing_of_it(store, counted):
    retriever = FeedbackRetriever(
        base_retriever=RunnableLambda(lambda _: CHUNKS), store=store, k=2
    )
    found = retriever.invoke("How long?")
    trace_id = found[0].metadata["feedback"]["trace_id"]
    store.update_soon(trace_id, status="answered", grounded=True)
    store.update_trace(trace_id, cited=["c0"])  # says nothing of how it ended
    store.record_soon(trace_id, "How long?", [], attempt=2)
    assert counted.sums("searches", "attempt") == {("first",): 1, ("rewritten",): 1}
    assert counted.counts("search.chunks", "namespace") == {("default",): (2, 2)}
    assert counted.sums("answers", "status", "grounded") == {("answered", "yes"): 1}


async def test_the_async_side_counts_the_same(store, counted):
    await store.arecord_trace("t1", "How long?", CHUNKS)
    await asyncio.gather(*(store.arate("t1", 4, actor=f"u{number}") for number in range(5)))
    await store.areceive([Incoming("e1", "t1", "copy")])
    assert counted.sums("signals", "signal") == {("rating",): 5, ("copy",): 1}


def test_each_scope_counts_under_its_own_name_and_writes_into_its_own(tmp_path, counted):
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}") as store:
        before = store.scoped("before")
        instrument(store, meter_provider=counted.provider)
        after = store.scoped("after")
        for scope in (store, before, after):
            scope.record_trace(f"t-{scope.namespace}", "How long?", CHUNKS)
            scope.rate(f"t-{scope.namespace}", 5)
        assert counted.sums("signals", "namespace") == {
            ("default",): 1,
            ("before",): 1,
            ("after",): 1,
        }
        assert [one.trace_id for one in after.signals_since()] == ["t-after"]
        assert store.scoped("after") is after


def test_twice_is_as_once_and_a_subclass_keeps_its_own_ways(counted):
    class Loud(FeedbackStore):
        """It says so."""

        said = 0

        def rate(self, trace_id, rating, **options):
            self.said += 1
            return super().rate(trace_id, rating, **options)

    with Loud("sqlite://") as store:
        for _ in range(2):
            assert instrument(store, meter_provider=counted.provider) is store
        store.record_trace("t1", "How long?", CHUNKS)
        store.rate("t1", 5)
        assert (store.said, type(store).__name__, isinstance(store, Loud)) == (1, "Loud", True)
    assert counted.sums("signals", "signal") == {("rating",): 1}


def test_an_answer_that_goes_out_without_the_store_is_counted(tmp_path, counted):
    (tmp_path / "folder.db").mkdir()
    store = instrument(
        FeedbackStore(f"sqlite:///{tmp_path / 'folder.db'}"), meter_provider=counted.provider
    )
    retriever = FeedbackRetriever(
        base_retriever=RunnableLambda(lambda _: CHUNKS), store=store, k=2
    )
    assert len(retriever.invoke("How long?")) == 2
    store.close()
    assert counted.sums("store.fallbacks", "operation")["read",] >= 1


def test_no_attribute_holds_a_question_a_chunk_or_a_person(store, counted):
    store.record_trace("t1", "My secret question?", CHUNKS, actor="ann")
    store.rate("t1", 5, actor="ann", comment="secret words", target=CHUNKS[0])
    store.update_trace("t1", status="answered", answer="secret answer")
    names = ("searches", "search.chunks", "answers", "signals", "ratings", "store.duration")
    kept = [point.attributes for name in names for point in counted.points(name)]
    assert len(kept) >= 6
    told = {value for attributes in kept for value in attributes.values()}
    assert told == {
        "default", "first", "answered", "unknown", "rating", "accepted", "source", "record_trace",
        "rate", "update_trace",
    }  # fmt: skip


def test_without_the_api_it_says_what_to_install_and_the_store_does_without():
    code = (
        "import sys; sys.modules['opentelemetry.metrics'] = None\n"
        "from langchain_feedback import FeedbackStore\n"
        "from langchain_feedback.integrations.telemetry import instrument\n"
        "store = FeedbackStore('sqlite://')\n"
        "try:\n    instrument(store)\n"
        "except ImportError as error:\n    print(error)\n"
        "store.record_trace('t1', 'How long?', []); print(len(store.rate('t1', 5)) > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "langchain-feedback[telemetry]" in done.stdout
    assert done.stdout.endswith("True\n")


def test_only_the_api_is_imported():
    code = (
        "import sys\n"
        "from langchain_feedback import FeedbackStore\n"
        "from langchain_feedback.integrations.telemetry import instrument\n"
        "instrument(FeedbackStore('sqlite://'))\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk.metrics')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
