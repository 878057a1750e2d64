"""Numbers and names of a statement against what it rests on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.quotes.figures import missing_figures, missing_names


@pytest.mark.parametrize(
    ("statement", "source"),
    [
        ("1,500 users", "1500 users"),
        ("1500 users", "1,500 users"),
        ("1.500 Nutzer", "1500 Nutzer"),
        ("1 500 users".replace(" ", "\u202f"), "1500 users"),
        ("1’500 users", "1500 users"),
        ("10 %", "10 percent"),
        ("10%", "10 percent"),
        ("2.50 euros", "2,5 euros"),
        ("007", "7"),
        ("１４ days", "14 days"),
        ("30 days", "thirty days"),
        ("42 days", "Forty-two days"),
        ("12 days", "TWELVE days"),
        ("1. Refunds\n2) Fees", "Refunds and fees"),
        ("Refunds take 14 days [1][12].", "take 14 days"),
        ("no number", ""),
    ],
)
def test_the_same_value_is_the_same_figure(statement, source):
    assert missing_figures(statement, [source]) == []


@pytest.mark.parametrize(
    ("statement", "source", "missing"),
    [
        ("41 days", "14 days", ["41"]),
        ("4 days", "14 days", ["4"]),
        ("140 days", "14 days", ["140"]),
        ("1,500", "1.5", ["1,500"]),
        ("15", "1.5", ["15"]),
        ("1.4", "14", ["1.4"]),
        ("2024-05-06", "2024-05-07", ["06"]),
        ("1.2.3", "1.2.4", ["1.2.3"]),
        ("41 and 41 and 9", "", ["41", "9"]),
        ("42 days", "forty days", ["42"]),
        ("5 m²", "5 m", ["2"]),
    ],
)
def test_a13_another_value_is_missing(statement, source, missing):
    assert missing_figures(statement, [source]) == missing


def test_a_figure_may_stand_in_any_source_or_be_computed():
    assert missing_figures("14 and 20 make 34", ["14 days", "20 euros"], ["34"]) == []
    assert missing_figures("14 and 20 make 34", ["14 days", "20 euros"]) == ["34"]


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a13_integers_are_equal_only_by_value(one, two):
    for written in (str(two), f"{two:,}"):
        assert (missing_figures(f"it is {one} in all", [f"it was {written} then"]) == []) == (
            one == two
        )


@given(st.text())
def test_a_text_lacks_no_figure_of_its_own(text):
    assert missing_figures(text, [text]) == []


@given(st.text(), st.text())
def test_any_text_is_survived(statement, source):
    assert isinstance(missing_figures(statement, [source], [source]), list)
    assert isinstance(missing_names(statement, [source]), list)


@pytest.mark.parametrize(
    ("statement", "sources", "missing"),
    [
        ("Support by Acme is free.", ["Support is free."], ["Acme"]),
        ("Support by ACME is free.", ["acme support"], []),
        ("Acme is free.", ["It is free."], []),  # the first word of a sentence says nothing
        ("It is free. Support is, too.", ["x"], []),
        ("Ask Jean-Luc or Ann.", ["Jean and Luc"], ["Ann"]),
        ("Write to Émile.", ["nobody"], ["Émile"]),
        ("Ask Bob and Bob.", [""], ["Bob"]),
        ("日本語のテキスト", [""], []),
    ],
)
def test_names_that_no_source_holds(statement, sources, missing):
    assert missing_names(statement, sources) == missing


def test_a13_spelled_numbers_of_the_answer_count_from_thirteen_up():
    assert missing_figures("Within forty-one days.", ["within 14 days"]) == ["forty-one"]
    assert missing_figures("Within fourteen days.", ["within 14 days"]) == []
    assert missing_figures("Within thirty days.", ["for thirty days"]) == []
    assert missing_figures("The two plans are one.", ["Plans: A, B."]) == []
