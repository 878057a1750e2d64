"""Sentences and words, without a dictionary."""

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_feedback.words import (
    content_words,
    inverse_document_frequency,
    sentence_spans,
    stem,
    tokens,
)
from tests.shared import HOSTILE, seconds

# Marks, markers and words of many scripts, the way documents put them together.
_PIECES = (
    '. ¦! ¦? ¦... ¦?! ¦.¦\n¦\n\n¦\n \n¦ ¦  ¦\t¦."¦.) ¦。¦؟ ¦- ¦* ¦• ¦> ¦# ¦### ¦1. ¦12) ¦2026. ¦'
    "| ¦|\n¦|---|\n¦-¦:¦e.g. ¦Dr. ¦No. ¦A. ¦Refunds¦take¦14¦99.9¦don't¦naïve¦cafe\u0301¦退款¦"
    "データ¦किताब¦हाँ। ¦หนังสือ¦كتاب¦ספר¦안녕¦C++¦_¦\ud800"
).split("¦")
texts = st.text() | st.lists(st.sampled_from(_PIECES), max_size=30).map("".join)
_MARKER_BEFORE = re.compile(r"\s*(?:(?:[-*+•>]|#{1,6}|\d{1,2}[.)])\s+)*\d?")
_MARKER_BEHIND = re.compile(r"\d?[.)]\s")


def sentences(text):
    return [text[start:end] for start, end in sentence_spans(text)]


# -- sentence spans


@given(texts)
@example("The fee is\n500. It is due.")
@example("5. ")
@example("1. one\n2. two")
def test_spans_lie_in_the_text_in_order_and_leave_only_list_markers_out(text):
    spans = sentence_spans(text)
    at = 0
    for start, end in spans:
        assert at <= start < end <= len(text)
        assert not text[start].isspace()
        assert not text[end - 1].isspace()
        assert any(map(str.isalnum, text[start:end]))
        at = end
    inside = {i for start, end in spans for i in range(start, end)}
    outside = [i for i, character in enumerate(text) if character.isalnum() and i not in inside]
    assert [i for i in outside if not _is_list_marker(text, i)] == []


def _is_list_marker(text, i):
    before = text[text.rfind("\n", 0, i) + 1 : i]
    return bool(_MARKER_BEFORE.fullmatch(before) and _MARKER_BEHIND.match(text, i + 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\n ", []),
        ("... --- !!!", []),
        ("One", ["One"]),
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Is it?! It is... Well.", ["Is it?!", "It is...", "Well."]),
        ('He said "Go." Then he left.', ['He said "Go."', "Then he left."]),
        ("It rose (a lot.) Then it fell.", ["It rose (a lot.)", "Then it fell."]),
        ("One.\n\nTwo", ["One.", "Two"]),
        ("A line\nthat goes on.", ["A line\nthat goes on."]),
        ("A paragraph\n \nwithout marks", ["A paragraph", "without marks"]),
        ("是的。不是！真的？", ["是的。", "不是！", "真的？"]),
        ("हाँ। नहीं। ठीक", ["हाँ।", "नहीं।", "ठीक"]),
        ("متى؟ غدا.", ["متى؟", "غدا."]),
    ],
)
def test_sentences_end_at_their_marks(text, expected):
    assert sentences(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Ask for it, e.g. by mail.",
        "See fig. 3 and sec. 4 of it.",
        "Dr. Smith and Mr. J. Doe agreed.",
        "It is approx. 3.5 days, i.e. 84 hours.",
        "The version is 2.0.1 now.",
        "Write to a.b@example.com for help.",
        "No. 5 is the one.",
    ],
)
def test_abbreviations_numbers_and_names_end_no_sentence(text):
    assert sentences(text) == [text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- one\n- two", ["one", "two"]),
        ("* one\n+ two\n• three", ["one", "two", "three"]),
        ("1. Ask for it.\n2. Wait.", ["Ask for it.", "Wait."]),
        ("1) one\n 12) two", ["one", "two"]),
        ("# Refunds\nMoney is back.", ["Refunds\nMoney is back."]),
        ("Text.\n## Refunds\n\nMoney is back.", ["Text.", "Refunds", "Money is back."]),
        ("> - 1. deep", ["deep"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |", ["| a | b |", "| 1 | 2 |"]),
        ("-5 degrees", ["-5 degrees"]),
        ("- -5 degrees", ["-5 degrees"]),
    ],
)
def test_list_items_headings_and_rows_lose_their_markers(text, expected):
    assert sentences(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The fee is\n500. It is due.", ["The fee is\n500.", "It is due."]),
        ("It was founded in\n1990. It grew.", ["It was founded in\n1990.", "It grew."]),
        ("1.", ["1."]),
        ("14. ", ["14."]),
        ("It costs 5. Then it is 6.", ["It costs 5.", "Then it is 6."]),
    ],
)
def test_a_number_that_says_something_is_no_list_marker(text, expected):
    assert sentences(text) == expected


# -- words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Größe, NAÏVE café!", ["grösse", "naïve", "café"]),
        ("cafe\u0301", ["café"]),
        ("the server’s don't", ["the", "server's", "don't"]),
        ("snake_case a-b 3.5", ["snake", "case", "a", "b", "3", "5"]),
        ("ＡＢＣ ﬁne", ["abc", "fine"]),
        ("co\u00adoperate", ["cooperate"]),
        ("退款时间", ["退款", "款时", "时间"]),
        ("退", ["退"]),
        ("日本語とEnglish混在", ["日本", "本語", "語と", "english", "混在"]),
        ("किताब कहाँ है", ["किताब", "कहाँ", "है"]),
        ("நீங்கள் எங்கே", ["நீங்கள்", "எங்கே"]),
        ("كِتَابٌ جميل", ["كتاب", "جميل"]),
        ("סֵפֶר טוב", ["ספר", "טוב"]),
        ("می\u200cخواهم", ["میخواهم"]),
        ("안녕하세요 여러분", ["안녕하세요", "여러분"]),
    ],
)
def test_words_of_many_scripts(text, expected):
    assert tokens(text) == expected


@pytest.mark.parametrize(
    "text",
    ["หนังสืออยู่ที่ไหน", "ພາສາລາວ", "ភាសាខ្មែរ", "ကျေးဇူးတင်ပါတယ်", "東京タワー", "𠀀𠀁𠀂"],
)
def test_scripts_without_spaces_are_pairs_that_overlap(text):
    found = tokens(text)
    assert {len(pair) for pair in found} <= {1, 2}
    assert len(found) > 1
    assert set("".join(found)) <= set(text)
    assert set(found) & set(tokens(text[len(text) // 2 :])), "a part of it shares pairs with it"


@given(texts)
def test_words_are_folded_and_lose_nothing(text):
    found = tokens(text)
    assert all(found)
    assert found == [word.casefold() for word in found]
    ascii_words = re.findall(r"[A-Za-z0-9]+", text) if text.isascii() else []
    assert "".join(ascii_words).casefold() == "".join(found).replace("'", "") or not text.isascii()


def test_content_words_keep_what_carries_meaning_in_order_with_repeats():
    text = "How do the server's refunds work, and are refunds for a plan of 3?"
    assert content_words(text) == [
        stem(word) for word in "server refund work refund plan 3".split()
    ]
    assert content_words("The and of is it, to a b") == []
    assert content_words("किताब कहाँ है") != []


@given(texts)
def test_content_words_are_the_same_in_capitals_and_without_marks(text):
    assert all(content_words(text))
    assert content_words(f"«{text}»!") == content_words(text)


@pytest.mark.parametrize(
    "family",
    [
        "cancel cancels cancelled cancelling cancellation cancellations",
        "refund refunds refunded refunding",
        "rotate rotates rotated rotating",
        "pay payment payments",
        "plan plans planned planning",
        "policy policies",
    ],
)
def test_one_stem_for_a_words_forms(family):
    assert len({stem(word) for word in family.split()}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("refund", "fund"),
        ("table", "stable"),
        ("plan", "plain"),
        ("class", "clay"),
        ("key", "keen"),
    ],
)
def test_two_words_keep_two_stems(one, other):
    assert stem(one) != stem(other)


@given(st.text())
@example("")
@example("ss")
@example("e")
def test_a_stem_is_no_longer_and_never_empty(word):
    found = stem(word)
    assert len(found) <= len(word)
    assert bool(found) == bool(word)


@pytest.mark.parametrize("word", ["14", "mp3s", "2026", "x2ed"])
def test_a_word_with_digits_stays(word):
    assert stem(word) == word


# -- weights


def test_weights_follow_scikit_learns_smoothed_formula():
    weights = inverse_document_frequency(iter(["refund refund window", "refund timing", "keys"]))
    assert weights[stem("refund")] == pytest.approx(math.log(4 / 3) + 1)
    assert weights[stem("window")] == pytest.approx(math.log(4 / 2) + 1)
    assert set(weights) == set(content_words("refund window timing keys"))
    assert inverse_document_frequency([]) == {}


# -- time


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("function", [sentence_spans, content_words])
def test_hostile_text_takes_linear_time(name, function):
    assert seconds(lambda: function(HOSTILE[name])) < 2
