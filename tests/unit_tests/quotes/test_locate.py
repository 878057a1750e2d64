"""The first locator: strict on words and numbers, lenient on white space and composed accents."""

import re
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_feedback import locate_quote
from langchain_feedback.quotes.locate import QuoteMatch
from tests.shared import HOSTILE, seconds, shared_rows

# -- the shared cases


def _cases(level):
    rows = [row for row in shared_rows("quote_cases.jsonl") if row["level"] == level]
    assert rows
    return rows


def test_a12_every_exact_case_is_found_with_the_sources_wording():
    for row in _cases("exact"):
        match = locate_quote(row["chunk"], row["quote"])
        assert match is not None, row
        assert match.text == row["expect"], row
        assert row["chunk"][match.start : match.end] == match.text
        assert match.start == row.get("start", row["chunk"].index(row["expect"]))


def test_a13_every_negative_case_is_refused():
    found = [(row["id"], locate_quote(row["chunk"], row["quote"])) for row in _cases("negative")]
    assert [(name, match) for name, match in found if match is not None] == []
    assert len(found) >= 20


# -- offsets


def test_the_first_occurrence_is_given_and_all_are_counted():
    chunk = "Take 14 days. Or take 14 days; take 14\ndays."
    assert locate_quote(chunk, "take 14 days") == QuoteMatch(17, 29, "take 14 days", 2)


@pytest.mark.parametrize(
    ("chunk", "quote", "start", "text", "occurrences"),
    [
        ("aa a a b", "a a", 3, "a a", 1),
        ("go to go to go to", "go to", 0, "go to", 3),
        ("a a a a", "a a", 0, "a a", 2),
        ("退款时间退款时间", "退款时间", 0, "退款时间", 2),
        ("\n  Refunds\t\n take 14", "Refunds take", 3, "Refunds\t\n take", 1),
        ("x Refunds take", " Refunds take ", 2, "Refunds take", 1),
        ("Ask (e.g. by mail).", "(e.g. by mail)", 4, "(e.g. by mail)", 1),
    ],
)
def test_offsets_count_code_points_of_the_source(chunk, quote, start, text, occurrences):
    match = locate_quote(chunk, quote)
    assert match == QuoteMatch(start, start + len(text), text, occurrences)
    assert chunk[match.start : match.end] == text


@pytest.mark.parametrize(
    "quote", ["", " \n", "the", "a", "14", "…", "... ...", "- -", "退款时", "\0 \0", "( )"]
)
def test_a13_what_is_too_short_proves_nothing(quote):
    assert locate_quote(f"x {quote} y the a 14 退款时", quote) is None


@pytest.mark.parametrize("chunk", ["", " ", "Refunds"])
def test_a_quote_longer_than_the_chunk_is_refused(chunk):
    assert locate_quote(chunk, "Refunds take 14 days") is None


# -- boundaries of words and numbers


@pytest.mark.parametrize(
    ("chunk", "quote"),
    [
        ("within 14 days", "within 1"),
        ("within 14 days", "4 days"),
        ("within 1,500 days", "500 days"),
        ("within 1,500 days", "within 1"),
        ("within 1,500 days", "within 1,"),
        ("about 99.9 percent", "9 percent"),
        ("about 99.9 percent", "about 99"),
        ("a dose of .5 mg", "5 mg"),
        ("at 10:30 UTC", "30 UTC"),
        ("for 1/2 cup", "2 cup"),
        ("of 10–20 days", "20 days"),
        ("at -5 °C", "5 °C"),
        ("at −5 °C", "5 °C"),
        ("if ≥5 days", "5 days"),
        ("for €20 a month", "20 a month"),
        ("a fee of 20€ a month", "fee of 20"),
        ("get a 50% discount", "get a 50"),
        ("for C++ developers", "for C"),
        ("a grade of A+ here", "grade of A"),
        ("are non-refundable items", "refundable items"),
        ("is state-of-the-art work", "art work"),
        ("as customers can't cancel", "as customers can"),
        ("as customers can’t cancel", "as customers can"),
        ("a snake_case name", "case name"),
        ("of 10² units", "of 10"),
        ("मेरा किताब", "मेरा क"),
        ("take x\u0302 now", "take x"),
        ("take cafe\u0301 now", "take cafe"),
        ("take 한국 now", "take \u1112\u1161"),
        ("คุณขอคืนเงินได้", "ขอคืนเง"),
    ],
)
def test_a13_a_quote_may_not_begin_or_end_inside_a_word_or_number(chunk, quote):
    assert locate_quote(chunk, quote) is None


@pytest.mark.parametrize(
    ("chunk", "quote"),
    [
        ("Wait 14 days. Then", "14 days."),
        ("Wait 14 days. Then", "14 days"),
        ("costs 5, then 6", "costs 5"),
        ("It is 5. Then 6", "Then 6"),
        ('say "wait here" now', "wait here"),
        ("(see page 5) now", "see page 5"),
        ("at -5 °C outdoors", "-5 °C"),
        ("the €20 plan", "€20 plan"),
        ("a 50% discount", "a 50%"),
        ("for C++ developers", "C++ developers"),
        ("non-refundable items", "non-refundable items"),
        ("the users' data", "the users"),
        ("- 14 days\n- 15 days", "14 days"),
        ("**14 days** of it", "14 days"),
        ("データは解約後30日間です", "解約後30日間"),
        ("คุณขอคืนเงินได้", "คืนเงิน"),
        ("用户可以在14天内退款", "14天内退款"),
    ],
)
def test_marks_beside_a_word_and_scripts_without_spaces_do_not_bind(chunk, quote):
    match = locate_quote(chunk, quote)
    assert match is not None
    assert match.text == quote


# -- two spellings of one character


@pytest.mark.parametrize(
    "text",
    ["le café noir", "Ångström units", "한국 사람", "か\u3099く せ\u3099ん", "நொடி பல", "שָׁלוֹם רב"],
)
@pytest.mark.parametrize("source_form", ["NFC", "NFD"])
@pytest.mark.parametrize("quote_form", ["NFC", "NFD"])
def test_a12_composed_and_decomposed_accents_are_one_character(text, source_form, quote_form):
    source = "x " + unicodedata.normalize(source_form, text) + " y"
    match = locate_quote(source, unicodedata.normalize(quote_form, text))
    assert match == QuoteMatch(2, len(source) - 2, source[2:-2], 1)


def test_another_accent_is_another_word():
    assert locate_quote("le café noir", "le cafe noir") is None
    assert locate_quote("le cafe noir", "le café noir") is None


# -- properties

letters = st.characters(categories=["L", "M", "N", "P", "S"])
word = st.text(letters, min_size=1, max_size=6)
ascii_word = st.from_regex(r"[a-z]{1,6}|[1-9]\d{0,3}", fullmatch=True)
gap = st.text(" \t\n\r\u00a0\u2003\u2028", min_size=1, max_size=3)


@st.composite
def passages(draw, words=word):
    """A text, a passage of two words or more that starts and ends at white space, its place."""
    parts = draw(st.lists(words, min_size=2, max_size=8))
    gaps = [draw(gap) for _ in parts]
    first = draw(st.integers(0, len(parts) - 2))
    last = draw(st.integers(first + 1, len(parts) - 1))
    pieces = [piece for pair in zip(parts, gaps, strict=True) for piece in pair][:-1]
    start = len("".join(pieces[: 2 * first]))
    passage = "".join(pieces[2 * first : 2 * last + 1])
    return "".join(pieces), passage, start


@given(passages())
def test_any_passage_of_whole_words_is_found(drawn):
    text, passage, start = drawn
    assume(sum(map(str.isalnum, passage)) > 1)
    match = locate_quote(text, passage)
    assert match is not None
    assert text[match.start : match.end] == match.text
    assert match.start <= start
    assert _folded(match.text) == _folded(passage)
    assert match.occurrences >= 1


def _folded(text):
    return " ".join(unicodedata.normalize("NFC", text).split())


@given(passages(), st.data())
def test_white_space_makes_no_difference(drawn, data):
    text, passage, _ = drawn
    spaced = re.sub(r"\s+", lambda _: data.draw(gap), passage)
    around = data.draw(gap) + spaced + data.draw(gap)
    assert locate_quote(text, around) == locate_quote(text, passage)


@given(passages(ascii_word), st.data())
def test_a13_a_changed_digit_is_refused(drawn, data):
    text, passage, _ = drawn
    digits = [i for i, character in enumerate(passage) if character.isdigit()]
    assume(digits)
    i = data.draw(st.sampled_from(digits))
    other = data.draw(st.sampled_from(sorted(set("0123456789") - {passage[i]})))
    changed = passage[:i] + other + passage[i + 1 :]
    assume(f" {_folded(changed)} " not in f" {_folded(text)} ")
    assert locate_quote(text, changed) is None


@given(passages(ascii_word), st.data())
def test_a13_an_added_or_removed_word_is_refused(drawn, data):
    text, passage, _ = drawn
    parts = passage.split()
    i = data.draw(st.integers(1, len(parts) - 1))
    added = [*parts[:i], data.draw(st.sampled_from(["not", "no", "very"])), *parts[i:]]
    removed = [*parts[:i], *parts[i + 1 :]]
    for changed in (" ".join(added), " ".join(removed)):
        if f" {changed} " not in f" {_folded(text)} ":
            assert locate_quote(text, changed) is None


@given(st.text(), st.text())
def test_whatever_is_found_says_what_was_sought(chunk, quote):
    match = locate_quote(chunk, quote)
    if match is not None:
        assert _folded(match.text) == _folded(quote)
        assert chunk[match.start : match.end] == match.text


@given(st.text(letters | st.just(" "), min_size=2, max_size=30), st.data())
def test_no_match_cuts_a_word_of_letters(text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    spaced = re.compile(r"[a-zA-Zа-яα-ω0-9]")
    match = locate_quote(text, text[start:end])
    if match is not None:
        for at in (match.start, match.end):
            pair = text[at - 1 : at + 1] if 0 < at < len(text) else ""
            assert len(spaced.findall(pair)) < 2


# -- time


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_linear_time(name):
    text = HOSTILE[name]
    assert seconds(lambda: locate_quote(text, text[: len(text) // 2])) < 2
    assert seconds(lambda: locate_quote(text, "take 14 days")) < 2
    assert seconds(lambda: locate_quote("Refunds take 14 days.", text)) < 2


def test_a_quote_that_overlaps_itself_everywhere_takes_linear_time():
    text = "ab " * 40_000
    assert seconds(lambda: locate_quote(text, "b " + "ab " * 20_000 + "a")) < 2
