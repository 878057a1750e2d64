"""Answers that only say that there is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.judges.declining import says_no_answer

DECLINES = [
    "I don't know.",
    "I don’t know.",
    "I do not know the answer to that.",
    "We cannot find this in the documents.",
    "I could not find this in the documents.",
    "Sorry, I could not find this.",
    "I am unable to answer this from the given chunks.",
    "The documents do not mention the fee.",
    "The provided context does not specify this.",
    "There is no information about fees.",
    "Ich weiß es nicht.",
    "Wir wissen das nicht",
    "Keine Angaben.",
    "Je ne sais pas.",
    "Aucune information.",
    "No lo sé.",
    "No encontré nada.",
]
ANSWERS = [
    "",
    " ",
    "Refunds take 14 days.",
    "No.",
    "The documents do not mention fees. Refunds take 14 days.",
    "The documents do not mention fees. Refunds are free.",
    "I don't know, but refunds are free for everybody.",
    "I could not find the fee; refunds are free, however.",
    "I could not find it: it is free.",
    "I don't know the exact terms, refunds always take a year.",
    "I cannot find a cheaper plan, all of them are free.",
    "I cannot find a cheaper plan than the Gold plan which is free for everybody.",
    "I cannot determine this because refunds are always denied.",
    "I do not know and refunds are always denied.",
    "Ich weiß es nicht, es ist kostenlos.",
    "Ich weiß es nicht und es ist kostenlos.",
    "Je ne sais pas, c'est gratuit.",
    "No lo sé porque es gratis.",
    "Ich weiß es nicht, aber es ist kostenlos.",
    "I could not find the 41 days.",
    "You do not know your customer.",
    "Ask support if I could not find it.",
    "I don't know " + "and so on " * 20,
]


@pytest.mark.parametrize("answer", DECLINES)
def test_common_words_for_no_answer_are_known(answer):
    assert says_no_answer(answer) is True
    assert says_no_answer(f"\n{answer.upper()} ") is True


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_says_anything_else_is_no_abstention(answer):
    assert says_no_answer(answer) is False


@given(st.sampled_from(DECLINES), st.integers(0, 999), st.text(max_size=20))
def test_a13_with_a_number_it_is_never_an_abstention(words, number, more):
    assert says_no_answer(f"{words} {more} {number}") is False


@given(st.text())
def test_any_text_is_survived(text):
    assert says_no_answer(text) in (True, False)
