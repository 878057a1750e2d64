import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import Document

from langchain_feedback.ranking.features import (
    FEATURES,
    PairScorer,
    WordWeights,
    features_of,
    title_of,
)
from langchain_feedback.ranking.views import Candidates

texts = st.text(st.sampled_from("refund day KEY é 退款時間 \u0301'’-.,?!0\n"), max_size=30)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
NONE = WordWeights.of([])


class Overlap(BaseCrossEncoder):
    """LangChain's own base class; scores by common letters."""

    def __init__(self):
        self.asked = []

    def score(self, text_pairs):
        self.asked += text_pairs
        return [len(set(one) & set(other)) for one, other in text_pairs]


# -- words


def test_a_rare_word_says_more_than_a_common_one():
    words = WordWeights.of(["Refunds of plans.", "Plans and keys.", "Plans rotate."])
    common, rare = (words.share("plan refund", text) for text in ("our plan", "our refund"))
    assert 0 < common < rare < 1
    assert common + rare == pytest.approx(1)


def test_words_are_compared_by_their_stems_and_without_accents():
    words = WordWeights.of(["Refunds.", "Cafés."])
    assert words.share("refunding a cafe", "Cafés make refunds") == 1.0


@given(texts, st.lists(texts, max_size=4), st.lists(texts, max_size=4))
def test_a_share_is_between_0_and_1_and_full_where_all_words_are_held(question, shown, known):
    words = WordWeights.of(known)
    for share in words.shares(question, [*shown, question]):
        assert 0 <= share <= 1 + 1e-12
    assert words.share(question, f"{question}\n{question}") in (0.0, pytest.approx(1.0))


def test_a_question_without_words_shares_nothing():
    assert WordWeights.of(["Refunds."]).shares("?!", ["Refunds.", ""]) == [0.0, 0.0]


def test_without_known_chunks_every_word_weighs_the_same():
    assert (dict(NONE.weights), NONE.rare) == ({}, 1.0)
    assert NONE.share("refunds by card", "A card.") == 0.5


def test_only_words_of_two_chunks_and_more_are_kept_and_at_most_20_000():
    words = WordWeights.of(["refund card", "refund bank", "refund card"])
    assert len(words.weights) == 2
    common, less = sorted(words.weights.values())
    assert common < less < words.rare
    assert words.share("refund", "a refund") == words.share("card", "cards") == 1
    # An artifact outlives the chunks: it tells no word of theirs.
    assert not {"refund", "card", "bank"} & set(words.weights)
    many = " ".join(f"w{number}" for number in range(25_000))
    assert len(WordWeights.of([many, many, "w1", "zebra"]).weights) == 20_000


# -- titles


@pytest.mark.parametrize(
    ("metadata", "title"),
    [
        ({}, ""),
        ({"title": "Refunds"}, "Refunds"),
        ({"Header 1": "Handbook", "Header 2": "Refunds"}, "Handbook Refunds"),
        ({"heading": "By card", "title": "Refunds"}, "Refunds By card"),
        ({"headings": ["Handbook", "Refunds", "", 3, None]}, "Handbook Refunds"),
        ({"title": None, "section": 7, "heading": b"bytes", "headings": {"a": 1}}, ""),
        ({"source": "refunds.md"}, ""),
    ],
)
def test_titles_are_read_as_splitters_and_loaders_name_them(metadata, title):
    assert title_of(Document("x", metadata=metadata)) == title


@given(
    st.dictionaries(
        st.sampled_from(["title", "heading", "headings", "Header 3", "other"]), anything
    )
)
def test_no_metadata_makes_a_title_fail(metadata):
    assert isinstance(title_of(Document("x", metadata=metadata)), str)


# -- the table


@given(texts, st.lists(st.tuples(texts, texts), min_size=1, max_size=6), st.data())
def test_features_are_finite_numbers_from_0_to_1(question, shown, data):
    documents = [Document(text, metadata={"title": title}) for text, title in shown]
    ranks = data.draw(st.lists(st.integers(-1, 10_000), min_size=len(shown), max_size=len(shown)))
    pool = Candidates(np.array(ranks), documents)
    table = features_of(question, pool, WordWeights.of(text for text, _ in shown))
    assert table.shape == (len(shown), len(FEATURES))
    assert table.dtype == np.float64
    assert np.isfinite(table).all()
    assert (table >= 0).all()
    assert (table <= 1 + 1e-12).all()


def test_the_rank_feature_falls_with_the_rank_and_is_0_for_what_the_base_lacks():
    pool = Candidates([0, 1, 2, 19, -1], [Document("x")] * 5)
    ranks = features_of("q", pool, NONE)[:, FEATURES.index("rank")]
    expected = [1, 1 / math.log2(3), 0.5, 1 / math.log2(21), 0]
    np.testing.assert_allclose(ranks, expected)


def test_text_and_title_are_told_apart():
    pool = Candidates(
        [0, 1], [Document("keys"), Document("x", metadata={"title": "Refunds of keys"})]
    )
    table = features_of("refund key", pool, NONE)
    assert table[:, FEATURES.index("words")].tolist() == [0.5, 0.0]
    assert table[:, FEATURES.index("title")].tolist() == [0.0, 1.0]


def test_functions_and_any_cross_encoder_of_langchain_are_features_in_their_order():
    encoder = Overlap()
    assert isinstance(encoder, PairScorer)
    pool = Candidates([0, 1], [Document("ab"), Document("xyz")])
    extra = {"encoder": encoder, "length": lambda _, chunks: [len(c.page_content) for c in chunks]}
    table = features_of("abc", pool, NONE, extra)
    assert table[:, len(FEATURES) :].tolist() == [[2.0, 2.0], [0.0, 3.0]]
    assert encoder.asked == [("abc", "ab"), ("abc", "xyz")]


@pytest.mark.parametrize(
    "given_back", [[1.0], [1.0, 2.0, 3.0], [[1.0], [2.0]], [1.0, math.nan], [math.inf, 1.0]]
)
def test_a_feature_that_is_not_one_finite_number_for_each_is_named(given_back):
    pool = Candidates([0, 1], [Document("a"), Document("b")])
    with pytest.raises(ValueError, match=r"'mine' must give one finite number for each of 2"):
        features_of("q", pool, NONE, {"mine": lambda _, __: given_back})


def test_what_a_feature_raises_is_passed_on():
    def broken(question, documents):
        msg = "no model"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="no model"):
        features_of("q", Candidates([0], [Document("a")]), NONE, {"mine": broken})


def test_candidates_without_documents_are_refused():
    with pytest.raises(ValueError, match=r"Candidates\(base_rank, documents\)"):
        features_of("q", Candidates([0, 1]), NONE)
