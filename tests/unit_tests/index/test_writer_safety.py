"""What an outage, a second process, or an odd document may not do to an index."""

import threading
import time
from dataclasses import dataclass
from datetime import date, timedelta
from datetime import time as clock_time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.writer import (
    IndexBusyError,
    IndexWriteError,
    IndexWriter,
    PlanChangedError,
    SavedFolder,
    TooManyRemovalsError,
    UnsupportedIndexError,
)
from langchain_feedback.store.feedback_store import FeedbackStore
from tests.unit_tests.index.writer_stores import EMBEDDING, NEEDS, OPEN

STORES = ("faiss", "memory", "qdrant", "chroma", "postgres")


@pytest.fixture(scope="module")
def feedback():
    with FeedbackStore("sqlite://") as store:
        yield store


@pytest.fixture
def ledger(feedback):
    return TableLedger(feedback, f"handbook {uuid4()}")


@pytest.fixture
def index():
    return InMemoryVectorStore(EMBEDDING)


@pytest.fixture
def writer(index, ledger):
    return IndexWriter(index, ledger, batch_size=2)


@pytest.fixture(params=STORES)
def opened(request, tmp_path):
    for package in NEEDS[request.param]:
        pytest.importorskip(package, reason=f"{package} is missing")
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        (tmp_path / "postgres.json").write_text(f'["{url}", "handbook_0"]')
    return OPEN[request.param](str(tmp_path))


def of(number):
    return f"00000000-0000-4000-8000-{number:012}"


def changes(plan):
    return {name: n for name, n in plan.counts.items() if n}


def texts(opened):
    return sorted(opened.held().values())


# -- what is only to be replaced outlives an outage


def test_an_embedder_that_fails_loses_nothing_that_was_only_to_be_replaced(
    opened, ledger, monkeypatch
):
    embed = type(EMBEDDING).embed_documents

    def fails(self, texts):
        if any("down" in text for text in texts):
            msg = "the embedder is down"
            raise ConnectionError(msg)
        return embed(self, texts)

    monkeypatch.setattr(type(EMBEDDING), "embed_documents", fails)
    writer = IndexWriter(opened.store, ledger, batch_size=2)
    before = [Document(text, id=of(at)) for at, text in enumerate(("a", "b", "c"))]
    writer.apply(writer.plan(before))
    after = [Document(text, id=of(at)) for at, text in enumerate(("a down", "b", "c new"))]
    with pytest.raises(ConnectionError, match="down"):
        writer.apply(writer.plan(after))
    assert texts(opened) == ["a", "b", "c"]
    after[0] = Document("a new", id=of(0))
    writer.apply(writer.plan(after))
    assert texts(opened) == ["a new", "b", "c new"]
    assert not writer.plan(after)


def test_metadata_that_a_document_lost_are_gone_from_the_index(opened, ledger):
    writer = IndexWriter(opened.store, ledger)
    writer.apply(writer.plan([Document("a", id=of(1), metadata={"page": 1, "old": "x"})]))
    writer.apply(writer.plan([Document("a", id=of(1), metadata={"page": 2})]))
    (found,) = opened.store.get_by_ids([of(1)])
    assert {k: v for k, v in found.metadata.items() if not k.startswith("_")} == {"page": 2}


def test_documents_without_metadata_are_known_in_the_next_run(opened, ledger):
    writer = IndexWriter(opened.store, ledger)
    documents = [Document("a"), Document("b"), Document("")]
    writer.apply(writer.plan(documents))
    assert changes(writer.plan(documents)) == {"keep": 3}
    assert texts(opened) == ["", "a", "b"]


def test_what_somebody_else_wrote_without_metadata_is_written_anew(tmp_path, ledger):
    pytest.importorskip("langchain_chroma", reason="langchain-chroma is missing")
    opened = OPEN["chroma"](str(tmp_path))
    opened.store.add_documents([Document("a"), Document("b")], ids=["1", "2"])
    documents = [Document(text, id=of) for of, text in (("1", "a"), ("2", "b"), ("3", "c"))]
    writer = IndexWriter(opened.store, ledger)
    writer.apply(writer.plan(documents))
    assert changes(writer.plan(documents)) == {"keep": 3}
    assert texts(opened) == ["a", "b", "c"]


def test_what_could_not_be_replaced_is_put_back_where_a_store_must_delete_first(ledger):
    class Other:
        """A store of its own kind, which refuses ids that it has, and nested metadata."""

        def __init__(self):
            self.rows = {}

        def get_by_ids(self, ids):
            return [self.rows[one] for one in ids if one in self.rows]

        def delete(self, ids=None):
            for one in ids:
                del self.rows[one]

        def add_documents(self, documents, ids=None):
            for one, document in zip(ids, documents, strict=True):
                if one in self.rows or isinstance(document.metadata.get("x"), dict):
                    raise ValueError(one)
                self.rows[one] = document.model_copy(update={"id": one})

    store = Other()
    writer = IndexWriter(store, ledger)
    writer.apply(writer.plan([Document("a", id="1"), Document("b", id="2")]))
    bad = [Document("a new", id="1"), Document("b", id="2", metadata={"x": {"y": 1}})]
    with pytest.raises(ValueError, match="2"):
        writer.apply(writer.plan(bad))
    assert sorted(one.page_content for one in store.rows.values()) == ["a new", "b"]
    writer.apply(writer.plan([Document("a", id="1"), Document("b", id="2")]))
    assert sorted(one.page_content for one in store.rows.values()) == ["a", "b"]


# -- stores that do not do what they are told


def test_a_delete_that_says_no_is_an_error_and_is_tried_again(ledger):
    class Stubborn(InMemoryVectorStore):
        refuses = True

        def delete(self, ids=None, **kwargs):
            return False if self.refuses else super().delete(ids)

    index = Stubborn(EMBEDDING)
    writer = IndexWriter(index, ledger, max_remove_share=0.5)
    writer.apply(writer.plan([Document("a", id="1"), Document("b", id="2")]))
    with pytest.raises(IndexWriteError, match="did not delete"):
        writer.apply(writer.plan([Document("a", id="1")]))
    assert ledger.entries()["2"].state == "removing"
    index.refuses = False
    writer.apply(writer.plan([Document("a", id="1")]))
    assert list(index.store) == ["1"]


def test_a_store_that_makes_ids_of_its_own_is_refused_before_it_fills_up(ledger):
    class Own(InMemoryVectorStore):
        def add_documents(self, documents, ids=None, **kwargs):
            return super().add_documents(documents, ids=[f"own {one}" for one in ids])

    index = Own(EMBEDDING)
    writer = IndexWriter(index, ledger, batch_size=1)
    with pytest.raises(UnsupportedIndexError, match="ids of its own"):
        writer.apply(writer.plan([Document("a", id="1"), Document("b", id="2")]))
    assert len(index.store) == 1


# -- what is told apart, and what is not


class Color(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Box:
    size: int


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (UUID(int=1), UUID(int=2)),
        (Path("a"), Path("b")),
        (Decimal("1.5"), Decimal("1.6")),
        (b"a", b"b"),
        (timedelta(1), timedelta(2)),
        (clock_time(1), clock_time(2)),
        (date(2026, 1, 1), date(2026, 1, 2)),
        (Color.RED, Color.BLUE),
        (Box(1), Box(2)),
        (np.float32(0.5), np.float32(0.25)),
        (1, True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_changed_value_of_any_usual_type_is_written(writer, one, other):
    writer.apply(writer.plan([Document("a", id="1", metadata={"x": one})]))
    assert not writer.plan([Document("a", id="1", metadata={"x": one})])
    assert changes(writer.plan([Document("a", id="1", metadata={"x": other})])) == {"replace": 1}


@pytest.mark.parametrize("key", ["page", "start_index", "section"])
def test_copies_of_a_text_in_one_source_are_one_document_in_any_order(writer, index, key):
    copies = [
        Document("Back to top.", metadata={"source": "faq.md", key: at}) for at in (2, 10, 1)
    ]
    plan, other = writer.plan(copies), writer.plan(copies[::-1])
    assert (plan.counts["add"], plan.digest) == (1, other.digest)
    writer.apply(plan.digest if plan.digest == other.digest else plan)
    ((_, kept),) = index.store.items()
    if key != "section":
        assert kept["metadata"][key] == 1
    assert not writer.plan(copies[::-1])


def test_of_two_documents_with_an_id_of_their_own_nobody_can_choose(writer):
    with pytest.raises(UnsupportedIndexError, match="Two documents have the id '1'"):
        writer.plan([Document("a", id="1"), Document("b", id="1")])


@pytest.mark.parametrize("key", ["a\0b", "a\ud800"])
def test_an_id_that_no_database_keeps_is_refused_with_a_reason(writer, key):
    with pytest.raises(UnsupportedIndexError, match="cannot be kept"):
        writer.plan([Document("a", id=key)])


# -- the digest that was printed, and what a message says


def test_the_digest_is_enough_as_it_is_printed(writer, index):
    plan = writer.plan([Document("a", id="1")])
    printed = str(plan).rsplit(maxsplit=1)[-1]
    for part in (printed[:11], printed[1:], ""):
        with pytest.raises(PlanChangedError):
            writer.apply(part)
    assert writer.apply(printed).digest == plan.digest


def test_new_ids_for_everything_are_refused_for_what_they_are(writer):
    writer.apply(writer.plan([Document("a", id="1")]))
    with pytest.raises(TooManyRemovalsError, match="other ids"):
        writer.apply(writer.plan([Document("a", id="2")]))
    with pytest.raises(TooManyRemovalsError, match="did the loader return nothing"):
        writer.apply(writer.plan([]))


# -- two processes


@pytest.mark.parametrize("name", ["faiss", "memory"])
def test_a_state_that_another_process_saved_meanwhile_is_not_overwritten(name, tmp_path, ledger):
    for package in NEEDS[name]:
        pytest.importorskip(package, reason=f"{package} is missing")
    one, other = (OPEN[name](str(tmp_path)) for _ in range(2))
    writers = [IndexWriter(it.store, ledger, persist=it.persist) for it in (one, other)]
    writers[0].apply(writers[0].plan([Document("a", id="1")], complete=False))
    late = writers[1].plan([Document("b", id="2")], complete=False)
    with pytest.raises(IndexBusyError, match="Load the index again"):
        writers[1].apply(late)
    assert "2" not in ledger.entries(), "nothing was begun"
    with pytest.raises(IndexBusyError, match="Load the index again"):
        other.persist(other.store)
    assert texts(OPEN[name](str(tmp_path))) == ["a"]
    fresh = OPEN[name](str(tmp_path))
    writer = IndexWriter(fresh.store, ledger, persist=fresh.persist)
    writer.apply(writer.plan([Document("b", id="2")], complete=False))
    writer.apply(writer.plan([Document("c", id="3")], complete=False))
    assert texts(OPEN[name](str(tmp_path))) == ["a", "b", "c"]


def test_a_folder_may_be_saved_again_by_whom_it_was_saved(tmp_path):
    states = SavedFolder(tmp_path, lambda text, folder: (folder / "x").write_text(text))
    for text in ("a", "b", "c"):
        states.save(text)
    assert (SavedFolder(tmp_path).current() / "x").read_text() == "c"


def test_what_a_writer_wrote_after_its_lease_ended_is_doubtful(feedback):
    name = f"handbook {uuid4()}"
    index, begun, go = InMemoryVectorStore(EMBEDDING), threading.Event(), threading.Event()

    class Slow(InMemoryVectorStore):
        def add_documents(self, documents, ids=None, **kwargs):
            begun.set()
            go.wait(10)
            return super().add_documents(documents, ids=ids)

    slow = Slow(EMBEDDING)
    slow.store = index.store
    late = IndexWriter(slow, TableLedger(feedback, name), lease_s=0.05)
    next_one = IndexWriter(index, TableLedger(feedback, name))
    old, new = ([Document("a", id="1", metadata={"page": page})] for page in (1, 2))
    raised = []

    def work():
        try:
            late.apply(late.plan(old, complete=False))
        except IndexBusyError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(10)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        time.sleep(0.02)
        try:
            if next_one.apply(next_one.plan(new, complete=False)).written:
                break
        except IndexBusyError:
            continue  # its lease has not ended yet
    go.set()
    thread.join()
    assert len(raised) == 1
    # The late one overwrote it: the text is the same, so that only the ledger can tell.
    assert index.store["1"]["metadata"] == {"page": 1}
    assert changes(next_one.plan(new, complete=False)) == {"repair": 1}
    next_one.apply(next_one.plan(new, complete=False))
    assert index.store["1"]["metadata"] == {"page": 2}
