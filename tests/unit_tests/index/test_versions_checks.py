"""What a version of an index must pass before it may be searched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from sqlalchemy import select

from langchain_feedback import DartboardRetriever, FeedbackRetriever
from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.versions import (
    EmbedderFingerprint,
    IndexRegistry,
    VersionRefusedError,
    checked_folder,
    embeddings_of,
    fingerprint_of,
    sealed_folder,
)
from langchain_feedback.index.writer import IndexWriter, SavedFolder
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import traces
from langchain_feedback.store.transactions import reading
from tests.unit_tests.index.version_kit import (
    PAGES,
    SIZE,
    Model,
    as_before,
    build,
    documents,
    follow,
    one_page,
    opener,
    prepared,
    question,
    rated,
    states,
)


@pytest.fixture
def store():
    with FeedbackStore("sqlite://", timeout_s=20) as opened:
        yield opened


@pytest.fixture
def registry(store, tmp_path):
    return prepared(store, tmp_path, "v1")


# -- checks


def test_a_smaller_version_is_refused_unless_it_is_meant(registry, tmp_path):
    registry.register("v2", Model("v2"), locator=build(tmp_path, "v2"))
    with pytest.raises(VersionRefusedError, match="11 chunks, and the active version has 12"):
        registry.ready("v2", open_version=opener(), chunk_count=11)
    kept = registry.get("v2")
    assert (kept.status, kept.checks["count"]["ok"]) == ("building", False)
    made = registry.ready("v2", open_version=opener(), chunk_count=11, force=True)
    assert (made.status, made.checks["judged"]) == (
        "ready",
        {"against": "v1", "forced": ["count"]},
    )


def test_an_empty_version_is_refused(store, tmp_path):
    registry = IndexRegistry(store)
    registry.register("v1", Model("v1"), locator=build(tmp_path, "v1", []))
    with pytest.raises(VersionRefusedError, match=r"no chunks.*finds nothing"):
        registry.ready("v1", open_version=opener(), chunk_count=0)


def test_check8_another_embedder_of_equal_size_is_never_ready(registry, tmp_path):
    locator = build(tmp_path, "v2")
    registry.register("v2", Model("v2"), locator=locator | {"model": "v3"})
    with pytest.raises(VersionRefusedError, match="it is v3, not v2"):
        registry.ready("v2", open_version=opener(), chunk_count=PAGES, force=True)
    assert states(registry)["v2"] == "building"
    assert "replay" not in registry.get("v2").checks


def test_a_version_that_cannot_be_searched_is_never_ready(registry, tmp_path):
    registry.register("v2", Model("v2"), locator=build(tmp_path, "v2"))

    def broken(version):
        opened = opener()(version)
        if version.version == "v2":
            opened.search_kwargs = {"k": "many"}
        return opened

    with pytest.raises(VersionRefusedError, match="cannot be searched"):
        registry.ready("v2", open_version=broken, chunk_count=PAGES, force=True)


def filled(store, folder, name):
    """Return a version's index and ledger, written by a writer."""
    index, ledger = InMemoryVectorStore(Model(name)), TableLedger(store, name)
    writer = IndexWriter(index, ledger)
    writer.apply(writer.plan(documents(name)))
    index.dump(str(folder / f"{name}.json"))
    return index, ledger


def test_ledger_and_index_must_agree(registry, tmp_path):
    index, ledger = filled(registry.store, tmp_path, "v2")
    locator = {"path": str(tmp_path / "v2.json"), "model": "v2"}
    registry.register("v2", Model("v2"), locator=locator)
    made = registry.ready("v2", open_version=opener(), ledger=ledger)
    assert (made.chunk_count, made.checks["ledger"]["ok"]) == (PAGES, True)
    index.delete(["v2-3"])
    index.add_documents([Document("Another text.", id="v2-4")])
    ledger.note([ledger.entries()["v2-5"].__class__(
        **vars(ledger.entries()["v2-5"]) | {"state": "writing"})])  # fmt: skip
    with pytest.raises(VersionRefusedError) as refused:
        registry.ready("v2", open_version=opener(), ledger=ledger, vector_store=index, force=True)
    told = str(refused.value)
    assert "1 in doubt (v2-5); 1 missing (v2-3); 1 changed (v2-4)" in told
    assert states(registry)["v2"] == "building"


def test_somebody_must_say_how_many_chunks_there_are(registry, tmp_path):
    registry.register("v2", Model("v2"), locator=build(tmp_path, "v2"))
    with pytest.raises(ValueError, match="chunk_count"):
        registry.ready("v2", open_version=opener())
    with pytest.raises(ValueError, match="k must be"):
        registry.ready("v2", open_version=opener(), chunk_count=12, k=0)


def test_what_is_or_was_active_is_not_checked_again(registry):
    with pytest.raises(VersionRefusedError, match="cannot be checked"):
        registry.ready("v1", open_version=opener(), chunk_count=PAGES)
    assert states(registry) == {"v1": "active"}


# -- shadow replay


def rebuilt(registry, folder, pages, **options):
    """Register a second version with these pages, and check it."""
    locator = build(folder, "v2", pages)
    registry.register("v2", Model("v2"), locator=locator)
    return registry.ready("v2", open_version=opener(), chunk_count=PAGES, k=3, **options)


def test_credited_chunks_must_still_come_up(registry, tmp_path):
    rated(registry.store, "v1", range(10))
    with pytest.raises(VersionRefusedError) as refused:
        rebuilt(registry, tmp_path, as_before(range(1, PAGES)))
    assert "9 of 10 credited chunks are in the top 3, and 10 of 10 in the active" in str(
        refused.value
    )
    made = registry.ready("v2", open_version=opener(), chunk_count=PAGES, force=True)
    assert made.checks["judged"]["forced"] == ["replay"]


def test_what_was_lost_and_of_how_few_is_said_and_kept_without_people_s_words(registry, tmp_path):
    rated(registry.store, "v1", range(6))
    with pytest.raises(VersionRefusedError) as refused:
        rebuilt(registry, tmp_path, as_before(range(4, PAGES)))
    said = str(refused.value)
    assert "2 of 6 credited chunks are in the top 3, and 6 of 6 in the active version" in said
    assert "67 points of a hundred fewer, and at most 2 may be" in said
    assert "of so few, fewer than 50, one alone is more" in said
    asked = ", ".join(repr(question(page)) for page in range(3))
    assert f"lost: {asked} and 1 more; force=True passes this check." in said
    kept = str(registry.get("v2").checks)
    assert "67 points" in kept
    assert question(0) not in kept


def test_only_what_may_be_forced_is_said_to_be(registry, tmp_path):
    registry.register("v2", Model("v2"), locator=build(tmp_path, "v2") | {"model": "other"})
    with pytest.raises(VersionRefusedError, match="another embedder") as refused:
        registry.ready("v2", open_version=opener(), chunk_count=PAGES)
    assert "force" not in str(refused.value)
    registry.register("v3", Model("v3"), locator=build(tmp_path, "v3"))
    with pytest.raises(VersionRefusedError, match="below 95 %; force=True passes this check"):
        registry.ready("v3", open_version=opener(), chunk_count=PAGES - 2)


@pytest.mark.parametrize(("lost", "ok"), [(1, True), (2, False)])
def test_two_points_of_a_hundred_may_be_lost(store, tmp_path, lost, ok):
    pages = range(60)
    registry = IndexRegistry(store)
    for name, there in (("v1", pages), ("v2", pages[lost:])):
        locator = build(tmp_path, name, [Document(f"Page {n} text.", id=f"{n}") for n in there])
        registry.register(name, Model(name), locator=locator)
    registry.ready("v1", open_version=opener(), chunk_count=60)
    registry.activate("v1", expected=None)
    for page in pages:
        one = Document(f"Page {page} text.", id=f"{page}")
        store.record_trace(f"t{page}", question(page), [one])
        store.rate(f"t{page}", 5, target=one, actor="ann")
    if ok:
        figures = registry.ready("v2", open_version=opener(), chunk_count=60).checks["replay"]
        assert figures["figures"]["found"] == 59
    else:
        with pytest.raises(VersionRefusedError, match="58 of 60") as refused:
            registry.ready("v2", open_version=opener(), chunk_count=60)
        assert "so few" not in str(refused.value)


def test_what_nobody_credited_is_not_asked_for(registry, tmp_path):
    rated(registry.store, "v1", [0], rating=1)
    rated(registry.store, "v1", [1], traffic="eval")
    made = rebuilt(registry, tmp_path, as_before(range(2, PAGES)))
    assert made.checks["replay"]["why"] == "no question has a credited chunk yet"


def test_questions_of_another_namespace_are_not_asked(registry, tmp_path):
    other = registry.store.scoped("b")
    rated(other, "v1", [0])
    other.pin(question(1), documents("v1", [0])[0], actor="ann")
    made = rebuilt(registry, tmp_path, as_before(range(1, PAGES)))
    assert made.checks["replay"]["figures"]["questions"] == 0


def test_a_pinned_chunk_counts_as_credited(registry, tmp_path):
    [one] = documents("v1", [0])
    registry.store.record_trace("t", question(0), [one])
    pin = registry.store.pin(question(0), one, actor="ann")
    with pytest.raises(VersionRefusedError, match="0 of 1 credited"):
        rebuilt(registry, tmp_path, as_before(range(1, PAGES)))
    registry.store.retract(pin)
    assert registry.ready("v2", open_version=opener(), chunk_count=PAGES).status == "ready"


def test_a_text_that_stands_in_a_longer_chunk_of_its_source_is_found(registry, tmp_path):
    rated(registry.store, "v1", [0, 1])
    longer = [
        one.model_copy(update={"page_content": f"{one.page_content}\nAnd more."})
        for one in as_before()
    ]
    assert rebuilt(registry, tmp_path, longer).checks["replay"]["figures"]["found"] == 2
    moved = [one.model_copy(update={"metadata": {"source": "else.md"}}) for one in longer]
    registry.register("v3", Model("v3"), locator=build(tmp_path, "v3", moved))
    with pytest.raises(VersionRefusedError, match="0 of 2 credited"):
        registry.ready("v3", open_version=opener(), chunk_count=PAGES)


def test_the_newest_200_questions_are_asked_and_nothing_is_recorded(registry, tmp_path):
    store = registry.store
    for number in range(203):
        one = Document(f"Text {number}.", id=f"d{number}")
        store.record_trace(f"t{number}", f"Asked {number} what?", [one])
        store.rate(f"t{number}", 5, target=one, actor="ann")
    # The first one was asked again since.
    store.record_trace("again", "asked 0 WHAT", [])
    asked = {"v1": [], "v2": []}

    def spying(version):
        opened = opener(store)(version)

        def note(query):
            asked[version.version].append(query)
            return query

        opened.base_retriever = RunnableLambda(note) | opened.base_retriever
        return opened

    registry.register("v2", Model("v2"), locator=build(tmp_path, "v2"))
    made = registry.ready(
        "v2", open_version=spying, chunk_count=PAGES,
        embedder_of=lambda one: one.base_retriever.last.vectorstore.embeddings,
    )  # fmt: skip
    figures = made.checks["replay"]["figures"]
    assert (figures["questions"], figures["credited"], figures["found"]) == (200, 200, 0)
    # Three probes, and each question once.
    assert (asked["v2"][3:], len(asked["v1"])) == (asked["v1"], 200)
    assert asked["v1"] == ["Asked 0 what?", *(f"Asked {n} what?" for n in range(202, 3, -1))]
    with reading(store) as connection:
        assert len(connection.execute(select(traces)).all()) == 204


def test_nothing_is_recorded_of_what_wraps_a_feedback_retriever(registry, tmp_path):
    rated(registry.store, "v1", [0])

    def wrapped(version):
        learning = opener(registry.store)(version)
        return DartboardRetriever(base_retriever=learning, k=3)

    registry.register("v2", Model("v2"), locator=build(tmp_path, "v2", as_before()))
    made = registry.ready("v2", open_version=wrapped, chunk_count=PAGES)
    assert made.checks["replay"]["figures"]["found"] == 1
    with reading(registry.store) as connection:
        assert len(connection.execute(select(traces)).all()) == 1


def test_feedback_does_not_hide_what_an_index_lost(registry, tmp_path):
    rated(registry.store, "v1", [0])
    registry.register("v2", Model("v2"), locator=build(tmp_path, "v2", as_before(range(1, PAGES))))

    def injecting(version):
        # Without `resolve` it adds what it has seen, whether the index has it or not.
        return FeedbackRetriever(
            base_retriever=opener()(version), store=registry.store, k=3, fetch_k=3
        )

    found = injecting(registry.get("v2")).invoke(question(0))
    assert documents("v1", [0])[0].page_content in [one.page_content for one in found]
    with pytest.raises(VersionRefusedError, match="0 of 1 credited"):
        registry.ready("v2", open_version=injecting, chunk_count=PAGES)


def test_an_active_version_that_is_broken_is_no_reason_to_stay_with_it(registry, tmp_path):
    rated(registry.store, "v1", [0])

    def half(version):
        if version.version == "v1":
            msg = "the folder is gone"
            raise OSError(msg)
        return opener()(version)

    registry.register("v2", Model("v2"), locator=build(tmp_path, "v2"))
    made = registry.ready("v2", open_version=half, chunk_count=PAGES)
    assert "the active one failed: OSError" in made.checks["replay"]["why"]


# -- fingerprints


def test_a_fingerprint_tells_models_apart_and_knows_its_own():
    one = fingerprint_of(Model("a"))
    assert one == fingerprint_of(Model("a"))
    assert (one.kind, one.model, one.dimension, len(one.probes)) == ("Model", "a", SIZE, 3)
    assert EmbedderFingerprint.from_json(one.to_json()) == one
    assert one.differs_from(fingerprint_of(Model("b"))) == "it is a, not b"
    assert "16 numbers, not 8" in one.differs_from(fingerprint_of(Model("a", size=8)))


def test_a_model_of_the_same_name_with_other_vectors_is_another_one():
    other = Model("b")
    expected = fingerprint_of(other)
    other.model = "a"
    found = fingerprint_of(other)
    renamed = EmbedderFingerprint(**vars(expected) | {"model": "a"})
    assert "it gives other vectors" in found.differs_from(renamed)


def test_the_same_vectors_under_another_name_are_the_same_model():
    one = fingerprint_of(Model("a"))
    moved = EmbedderFingerprint(**vars(one) | {"model": "folder/a", "kind": "Served"})
    assert one.differs_from(moved) is None


@given(st.integers(0, 50))
def test_a_hosted_model_that_is_not_quite_exact_is_the_same(start):
    exact, noisy = Model("a", size=1536), Model("a", size=1536, noise=1e-3)
    noisy.asked = 10 * start
    found = fingerprint_of(noisy)
    assert found.sha256 != fingerprint_of(exact).sha256
    assert found.differs_from(fingerprint_of(exact)) is None


def test_vectors_that_are_none_are_refused():
    for vectors in ([float("nan")] * 3, [], [[1.0]]):
        broken = Model("a")
        broken.embed_query = lambda _, of=vectors: of
        with pytest.raises(ValueError, match="vectors of finite numbers"):
            fingerprint_of(broken)
    zeros = Model("a")
    zeros.embed_query = lambda _: [0.0, -0.0]
    assert fingerprint_of(zeros).differs_from(fingerprint_of(zeros)) is None


def test_the_embedder_is_found_through_what_wraps_it(store, tmp_path):
    registry = prepared(store, tmp_path, "v1")
    version = registry.active()
    bare, learning = opener()(version), opener(store)(version)
    for one in (bare, learning, bare.with_config(tags=["a"]), bare | list, follow(registry)):
        assert embeddings_of(one).model == "v1"
    assert embeddings_of(one_page(None)) is None
    assert np.array_equal(embeddings_of(bare).embed_query("x"), Model("v1").embed_query("x"))


# -- folders


def test_a_folder_is_opened_only_as_it_was_registered(registry, tmp_path):
    pytest.importorskip("faiss", reason="the extra `faiss` is missing")
    community = pytest.importorskip("langchain_community.vectorstores")
    for name in ("a", "b"):
        texts = [one.page_content for one in documents(name)]
        community.FAISS.from_texts(texts, Model("v2")).save_local(str(tmp_path / name))

    def opened(version):
        folder = str(checked_folder(version))
        return community.FAISS.load_local(
            folder, Model("v2"), allow_dangerous_deserialization=True
        ).as_retriever()

    registry.register("v2", Model("v2"), locator=sealed_folder(tmp_path / "a"))
    new = registry.get("v2")
    assert "as of a" in opened(new).invoke(question(1))[0].page_content
    pickled = (tmp_path / "a" / "index.pkl").read_bytes()
    (tmp_path / "a" / "index.pkl").write_bytes((tmp_path / "b" / "index.pkl").read_bytes())
    with pytest.raises(VersionRefusedError, match="not what was registered"):
        opened(new)
    (tmp_path / "a" / "index.pkl").write_bytes(pickled)
    assert opened(new)
    (tmp_path / "a" / "more.pkl").write_bytes(b"")
    with pytest.raises(VersionRefusedError, match="not what was registered"):
        opened(new)


def test_a_folder_that_is_gone_or_was_never_sealed_is_refused(registry, tmp_path):
    (tmp_path / "a" / "deeper").mkdir(parents=True)
    with pytest.raises(VersionRefusedError, match="holds no file"):
        sealed_folder(tmp_path / "a")
    (tmp_path / "a" / "deeper" / "file").write_text("x")
    registry.register("v2", None, locator=sealed_folder(tmp_path / "a"))
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(VersionRefusedError, match="holds no file"):
        checked_folder(registry.get("v2"))
    with pytest.raises(VersionRefusedError, match="no sealed folder"):
        checked_folder(registry.get("v1"))


def test_a_state_that_a_version_was_made_of_is_kept(registry, tmp_path):
    states = SavedFolder(tmp_path, lambda text, folder: (folder / "index.faiss").write_text(text))
    states.save("first")
    version = registry.register("v2", None, locator=sealed_folder(states.current()))
    for text in ("second", "third", "fourth"):
        states.save(text)
    assert (checked_folder(version) / "index.faiss").read_text() == "first"
    held = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert len(held) == 3  # it, the current one, and the one before
