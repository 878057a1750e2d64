"""The cosine as a feature: by stored vectors, remembered, and as new as its embeddings."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_feedback.ranking.linear import LinearRanker, TrainingGroup
from langchain_feedback.ranking.views import Candidates
from langchain_feedback.retrievers.cosine import CosineFeature
from tests.unit_tests.retrievers.feedback_kit import MONEY, REFUND, SERVER, AngleEmbeddings

CHUNKS = [Document(text, id=f"c{at}") for at, text in enumerate((MONEY, SERVER))]
COSINES = [math.cos(math.radians(angle)) for angle in (10, 90)]


def test_texts_are_embedded_once():
    embeddings = AngleEmbeddings()
    feature = CosineFeature(embeddings=embeddings)
    for _ in range(3):
        assert feature(REFUND, CHUNKS) == pytest.approx(COSINES, abs=1e-6)
    assert sorted(embeddings.asked) == sorted([MONEY, SERVER, REFUND])


@pytest.mark.parametrize("store", [InMemoryVectorStore, FAISS])
def test_vectors_are_read_from_the_store(store):
    embeddings = AngleEmbeddings()
    index = store.from_documents(CHUNKS, embeddings, ids=["c0", "c1"])
    found = index.similarity_search(REFUND, k=2)
    embeddings.asked.clear()
    assert CosineFeature(index)(REFUND, found) == pytest.approx(COSINES, abs=1e-6)
    assert embeddings.asked == [REFUND]


def test_a_zero_vector_and_copies_of_a_text():
    class Zeros(AngleEmbeddings):
        def embed_query(self, text):
            return [0.0, 0.0] if text == SERVER else super().embed_query(text)

    feature = CosineFeature(embeddings=Zeros())
    assert feature(REFUND, [*CHUNKS, CHUNKS[0]]) == pytest.approx(
        [COSINES[0], 0.0, COSINES[0]], abs=1e-6
    )
    assert feature(REFUND, []) == []


def test_without_embeddings_it_says_what_it_needs():
    with pytest.raises(ValueError, match="needs `embeddings`"):
        CosineFeature()


def test_more_than_it_remembers_is_right_in_every_thread(monkeypatch):
    monkeypatch.setattr("langchain_feedback.retrievers.cosine._KEPT", 20)
    texts = {f"Text {angle}.": angle for angle in range(60)}
    feature = CosineFeature(embeddings=AngleEmbeddings(**texts))
    pools = [[Document(text) for text in list(texts)[at : at + 15]] for at in range(46)]

    def right(pool):
        expected = [math.cos(math.radians(texts[one.page_content])) for one in pool]
        return np.allclose(feature(REFUND, pool), expected, atol=1e-6)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(right, pools * 4))


def test_a_ranker_of_another_model_is_refused():
    first = CosineFeature(embeddings=AngleEmbeddings(), version="mini")
    group = TrainingGroup(REFUND, CHUNKS[::-1], [0, 1], frozenset({1}))
    ranker = LinearRanker.fit([group] * 30, extra_features={"cosine": first})
    assert ranker.score(REFUND, Candidates([0, 1], CHUNKS[::-1])).argmax() == 1
    other = CosineFeature(embeddings=AngleEmbeddings(), version="large")
    with pytest.raises(ValueError, match="'mini' of the feature 'cosine', and this is 'large'"):
        LinearRanker.from_json(ranker.to_json(), extra_features={"cosine": other})


def test_the_models_name_is_its_version():
    class Named(AngleEmbeddings):
        model = "mini-l6"

    assert CosineFeature(embeddings=Named()).version == "Named:mini-l6"
    assert CosineFeature(embeddings=AngleEmbeddings()).version is None
