"""Quotes as citations: in one chunk, or over the border of two neighbors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_feedback.judges.citing import AnswerSpan, cite
from langchain_feedback.words import content_words

CLAIM = AnswerSpan("It takes 14 days.", 3, 20)
TEXT = "Money comes back to the card. Refunds take fourteen days after we get the item. Fees stay."


def chunk(text: str, **metadata: Any) -> Document:
    return Document(text, id=text[:5], metadata={"source": "faq.md", **metadata})


def found(quote: str, *documents: Document, named: Document | None = None) -> list[Any]:
    citations = cite(quote, named, documents, claim=CLAIM)
    by_id = {document.id: document.page_content for document in documents}
    for citation in citations:
        assert (citation["claim"], citation["answer_start"], citation["answer_end"]) == CLAIM
        if citation["verified"]:
            text = by_id[citation["chunk_id"]]
            assert text[citation["start"] : citation["end"]] == citation["quote"]
    return [(c["chunk_id"], c["quote"], c["verified"], c["occurrences"]) for c in citations]


def test_the_named_chunk_comes_first_and_then_the_others():
    one, two = chunk("Aaaaa. Refunds take time."), chunk("Bbbbb. Refunds take time.")
    assert found("refunds take time", one, two)[0][0] == "Aaaaa"
    assert found("refunds take time", one, two, named=two)[0][0] == "Bbbbb"
    assert found("Bbbbb. Refunds", one, two, named=one) == [("Bbbbb", "Bbbbb. Refunds", True, 1)]


def test_a_quote_that_stands_nowhere_cites_the_named_chunk_unverified():
    one = chunk("Aaaaa. Refunds take time.")
    assert found("It is free.", one, named=one) == [("Aaaaa", "It is free.", False, 0)]
    assert found("It is free.", one) == []
    assert found(" \n", one, named=one) == []


def split(at: int, behind: int, **more: Any) -> tuple[Document, Document]:
    """Cut the text in two; the second begins at `behind`."""
    return (
        chunk(TEXT[:at], start_index=100, **more),
        chunk(TEXT[behind:], start_index=100 + behind, **more),
    )


@pytest.mark.parametrize(
    ("at", "behind", "first", "second"),
    [
        # The second goes on at once.
        (43, 43, "Refunds take ", "fourteen days"),
        # One repeats the end of the other: what is in both is cited once.
        (43, 30, "Refunds take ", "fourteen days"),
        (43, 38, "Refunds take ", "fourteen days"),
        # White space between them was dropped.
        (42, 43, "Refunds take", "fourteen days"),
    ],
    ids=["adjacent", "overlap", "short_overlap", "gap"],
)
def test_a_quote_over_the_border_of_neighbors_cites_both(at, behind, first, second):
    one, two = split(at, behind)
    if behind == 30:
        # It stands in the second as a whole.
        assert found("Refunds take fourteen days", one, two) == [
            (two.id, "Refunds take fourteen days", True, 1)
        ]
        return
    expected = [(one.id, first, True, 1), (two.id, second, True, 1)]
    assert [
        (i, q.strip(), v, n) for i, q, v, n in found("Refunds take fourteen days", one, two)
    ] == [(i, q.strip(), v, n) for i, q, v, n in expected]
    # In any order, and whatever chunk was named.
    assert found("Refunds take fourteen days", two, one, named=two) == found(
        "Refunds take fourteen days", one, two
    )


def test_a_quote_over_the_border_of_pages_cites_both():
    one = chunk(TEXT[:43], page=3)
    two = chunk(TEXT[43:], page=4)
    assert [c[0] for c in found("Refunds take fourteen days", one, two)] == [one.id, two.id]


@pytest.mark.parametrize(
    "second",
    [
        {"source": "other.md", "start_index": 143},
        {"start_index": 150},
        {"start_index": 90},
        {"start_index": 143, "page": 9},
        {"start_index": 143, "heading": "Fees"},
        {},
        {"start_index": "143"},
    ],
    ids=repr,
)
def test_a13_chunks_that_are_no_neighbors_are_not_joined(second):
    one, two = chunk(TEXT[:43], start_index=100), chunk(TEXT[43:], **second)
    assert found("Refunds take fourteen days", one, two) == []


@pytest.mark.parametrize(("one", "two"), [(3, 5), (4, 3), (3, "4"), (3, None)])
def test_a13_pages_that_do_not_follow_each_other_are_not_joined(one, two):
    documents = chunk(TEXT[:43], page=one), chunk(TEXT[43:], page=two)
    assert found("Refunds take fourteen days", *documents) == []


def test_a13_a_changed_figure_over_a_border_is_refused():
    one, two = split(43, 43)
    assert found("Refunds take forty days", one, two) == []
    assert found("Refunds never take fourteen days", one, two) == []


def test_without_a_source_nobody_is_a_neighbor():
    one, two = (Document(t, metadata={"start_index": s}) for t, s in [("a b c", 0), ("d e", 5)])
    assert cite("a b c d e", None, [one, two], claim=CLAIM) == []


@given(st.data())
def test_any_run_of_words_over_any_border_is_cited_with_its_spans(data):
    words = TEXT.split()
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word) + 1)
    cut = data.draw(st.integers(3, len(words) - 3))
    overlap = data.draw(st.integers(0, 2))
    first = data.draw(st.integers(0, cut - 1 - overlap))
    last = data.draw(st.integers(cut + 1, len(words)))
    one = chunk(TEXT[: starts[cut] - 1], start_index=0)
    behind = starts[cut - overlap]
    two = Document(TEXT[behind:], id="two", metadata={"source": "faq.md", "start_index": behind})
    quote = " ".join(words[first:last])
    if first >= cut - overlap:
        return
    pair = cite(quote, None, [one, two], claim=CLAIM)
    if len(words[first:last]) < 2 or not content_words(quote):
        return
    assert [citation["chunk_id"] for citation in pair] == [one.id, "two"]
    assert pair[0]["quote"] == one.page_content[pair[0]["start"] : pair[0]["end"]]
    assert pair[1]["quote"] == two.page_content[pair[1]["start"] : pair[1]["end"]]
    said = f"{pair[0]['quote'].strip()} {pair[1]['quote'].strip()}"
    assert said.rstrip(".") == quote.rstrip(".")
