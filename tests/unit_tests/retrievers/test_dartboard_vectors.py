"""Where the vectors come from: real stores of this machine, and texts where they give none."""

import copy
import logging
import threading

import faiss
import numpy as np
import pytest
from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from langchain_feedback import DartboardCompressor, DartboardRetriever
from tests.fakes import ListRetriever

TEXTS = [f"Text number {at}." for at in range(12)]


class Counting(Embeddings):
    """Gives each text a direction of its own, and counts what it was asked for."""

    def __init__(self, size=16):
        self.size, self.embedded, self.asked = size, [], []

    def embed_documents(self, texts):
        self.embedded += texts
        return [self._vector(text) for text in texts]

    def embed_query(self, text):
        self.asked.append(text)
        return self._vector(text)

    def _vector(self, text):
        rng = np.random.default_rng(list(text.encode()))
        return (rng.normal(size=self.size) + 1.5).tolist()


@pytest.fixture
def embeddings():
    return Counting()


def ids_of(found):
    return [document.id for document in found]


def filled(kind, embeddings, copies=1):
    """Make a store that holds the texts, each under ids of its own."""
    documents = [
        Document(text, id=f"{at}/{number}", metadata={"n": at})
        for at, text in enumerate(TEXTS)
        for number in range(copies)
    ]
    if kind == "faiss":
        store = FAISS.from_documents(documents, embeddings, ids=ids_of(documents))
    else:
        store = InMemoryVectorStore(embeddings)
        store.add_documents(documents)
    embeddings.embedded.clear()
    return store


@pytest.mark.parametrize("kind", ["memory", "faiss"])
async def test_the_stores_own_vectors_are_read_and_nothing_is_embedded(kind, embeddings, caplog):
    store = filled(kind, embeddings, copies=5)
    retriever = DartboardRetriever(vector_store=store, k=3)
    read = retriever.invoke("Which?")
    again = await retriever.ainvoke("Which?")
    assert embeddings.embedded == []
    anew = DartboardRetriever(base_retriever=store.as_retriever(), embeddings=Counting(), k=3)
    embedded = anew.invoke("Which?")
    assert len(anew.embeddings.embedded) == len(set(anew.embeddings.embedded))
    assert ids_of(read) == ids_of(again) == ids_of(embedded)
    scores = [[d.metadata["relevance_score"] for d in found] for found in (read, embedded)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)  # FAISS holds 32 bits
    assert caplog.records == []


def test_a07_the_objects_of_a_faiss_store_stay_untouched(embeddings):
    store = filled("faiss", embeddings, copies=2)
    before = copy.deepcopy(store.docstore._dict)
    retriever = DartboardRetriever(vector_store=store, k=3)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(retriever.invoke("Which?")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.docstore._dict == before
    scores = {tuple(d.metadata["relevance_score"] for d in found) for found in results}
    assert len(scores) == 1
    assert len(results) == 4


def test_a_faiss_index_that_changed_is_read_anew(embeddings):
    store = filled("faiss", embeddings)
    retriever = DartboardRetriever(vector_store=store, k=12)
    retriever.invoke("Which?")
    store.delete(["0/0", "3/0"])
    store.add_documents([Document("A new one.")], ids=["new"])
    embeddings.embedded.clear()
    found = retriever.invoke("Which?")
    assert embeddings.embedded == []
    assert len(found) == 11
    score = {d.id: d.metadata["relevance_score"] for d in found}
    anew = DartboardRetriever(base_retriever=store.as_retriever(), embeddings=Counting(), k=12)
    for document in anew.invoke("Which?"):
        assert score[document.id] == pytest.approx(document.metadata["relevance_score"], rel=1e-3)


@pytest.mark.parametrize("wanted", [[11], [3, 7]])
async def test_a22_a_filter_of_faiss_is_not_cut_short(wanted, embeddings):
    """FAISS filters 20 found documents by default, whatever `k` is."""
    store = filled("faiss", embeddings, copies=40)
    retriever = DartboardRetriever(vector_store=store, k=2)
    for found in (
        retriever.invoke("Which?", filter=lambda metadata: metadata["n"] in wanted),
        await retriever.ainvoke("Which?", filter=lambda metadata: metadata["n"] in wanted),
        retriever.invoke("Which?", filter={"n": wanted[0]}),
    ):
        assert {d.metadata["n"] for d in found} <= set(wanted)
        assert len(found) == min(2, len({d.metadata["n"] for d in found}) or 1)
    both = retriever.invoke("Which?", filter=lambda metadata: metadata["n"] in wanted)
    assert len(both) == len(wanted)


def test_an_index_that_cannot_give_vectors_back_is_embedded_instead(embeddings, caplog):
    store = filled("faiss", embeddings)
    quantizer = faiss.IndexFlatL2(16)
    index = faiss.IndexIVFFlat(quantizer, 16, 1)
    vectors = np.array(embeddings.embed_documents(TEXTS), dtype=np.float32)
    index.train(vectors)
    index.add(vectors)
    store.index = index
    embeddings.embedded.clear()
    with caplog.at_level(logging.WARNING):
        found = DartboardRetriever(vector_store=store, k=3).invoke("Which?")
    assert len(found) == 3
    assert embeddings.embedded
    assert "FAISS could not be read, texts are embedded" in caplog.text


class Elsewhere(VectorStore):
    """A store that nothing is known of."""

    def __init__(self, inner, embeddings=None):
        self.inner, self._own = inner, embeddings

    @property
    def embeddings(self):
        return self._own

    @classmethod
    def from_texts(cls, *args, **kwargs):
        raise NotImplementedError

    def similarity_search(self, query, k=4, **kwargs):
        return self.inner.similarity_search(query, k, **kwargs)


async def test_an_unknown_store_is_embedded_by_its_own_embeddings(embeddings):
    store = Elsewhere(filled("memory", embeddings), embeddings)
    retriever = DartboardRetriever(vector_store=store, k=3, oversampling=2)
    found = retriever.invoke("Which?")
    assert len(embeddings.embedded) == 6
    assert ids_of(await retriever.ainvoke("Which?")) == ids_of(found)


def test_documents_that_the_store_does_not_hold_are_embedded(embeddings):
    store = filled("memory", embeddings)
    stranger, nameless = Document("A stranger.", id="elsewhere"), Document("Without an id.")
    compressor = DartboardCompressor(vector_store=store, k=9)
    pool = [stranger, nameless, *store.similarity_search("Which?", 3)]
    assert len(compressor.compress_documents(pool, "Which?")) == 5
    assert embeddings.embedded == ["A stranger.", "Without an id."]


async def test_other_embeddings_than_the_stores_are_used_for_everything(embeddings):
    store = filled("memory", embeddings)
    others = Counting(size=3)
    compressor = DartboardCompressor(vector_store=store, embeddings=others, k=2)
    pool = store.similarity_search("Which?", 4)
    asked = len(embeddings.asked)
    assert len(compressor.compress_documents(pool, "Which?")) == 2
    assert len(await compressor.acompress_documents(pool, "Which?")) == 2
    assert len(others.embedded) == 8
    assert embeddings.embedded == []
    assert len(embeddings.asked) == asked


async def test_without_embeddings_a_cross_encoder_and_stored_vectors_suffice(embeddings):
    class Encoder:
        def score(self, text_pairs):
            return [len(text) / 100 for _, text in text_pairs]

    store = filled("memory", embeddings)

    class Dumb(InMemoryVectorStore):
        embeddings = None

    dumb = Dumb(embeddings)
    dumb.store = store.store
    compressor = DartboardCompressor(vector_store=dumb, cross_encoder=Encoder(), k=2)
    pool = store.similarity_search("Which?", 4)
    assert len(compressor.compress_documents(pool, "Which?")) == 2
    with pytest.raises(ValueError, match="1 documents have no vector in Dumb"):
        compressor.compress_documents([*pool, Document("A stranger.")], "Which?")
    with pytest.raises(ValueError, match="Pass `embeddings`"):
        await compressor.acompress_documents([*pool, Document("A stranger.")], "Which?")


def test_the_store_behind_bindings_and_wrappers_is_found(embeddings):
    store = filled("memory", embeddings)
    bound = store.as_retriever().bind(filter=lambda document: document.metadata["n"] < 6)
    retriever = DartboardRetriever(base_retriever=bound, k=3)
    found = retriever.invoke("Which?")
    assert embeddings.embedded == []
    assert all(document.metadata["n"] < 6 for document in found)
    wrapped = DartboardRetriever(
        base_retriever=ListRetriever(documents=found), vector_store=store, k=2
    )
    assert len(wrapped.invoke("Which?")) == 2
    assert embeddings.embedded == []
