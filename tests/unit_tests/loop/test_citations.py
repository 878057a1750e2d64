"""How each chunk fares: opened, quoted, graded."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.loop.citations import chunk_reports, click_through, never_cited
from langchain_feedback.store.records import TracedChunk
from tests.unit_tests.loop.kit import asked, chunk, said

A, B, C = (chunk(name, source=f"{name}.md") for name in "abc")
NOW = datetime.now(UTC) + timedelta(minutes=1)


def by_id(store, **kwargs):
    return {one.chunk_id: one for one in chunk_reports(store, **kwargs)}


@given(clicks=st.integers(0, 50), looked=st.floats(0, 1e6))
def test_click_through_is_a_share_drawn_toward_a_tenth(clicks, looked):
    rate = click_through(clicks, looked)
    assert 0 < rate <= 1
    assert click_through(0, 0) == 0.1
    if looked:
        assert min(0.1, clicks / looked) - 1e-9 <= rate <= max(0.1, clicks / looked) + 1e-9
    assert click_through(clicks + 1, looked) >= rate


def test_clicks_count_by_how_many_looked_so_far_down(store):
    for number in range(10):
        trace_id = asked(store, f"Question {number}?", [A, B, C])
        if number < 2:
            said(store, trace_id, "source_click", target="c", actor="ann")
            said(store, trace_id, "source_click", target="c", actor="ann")
    said(store, trace_id, "source_click", target="a", actor="ann")
    said(store, trace_id, "source_click", target="a", actor="bob")
    reports = by_id(store)
    assert {key: one.clicks for key, one in reports.items()} == {"a": 2, "b": 0, "c": 2}
    rates = [reports[key].click_through for key in "abc"]
    expected = [3 / (10 + 10), 1 / (10 / 2 + 10), 3 / (10 / 3 + 10)]
    assert rates == pytest.approx(expected)


def test_a_click_that_was_taken_back_does_not_count(store):
    trace_id = asked(store, "Which?", [A])
    store.retract(said(store, trace_id, "source_click", target="a"))
    assert by_id(store)["a"].clicks == 0


def test_cited_rate_counts_only_answers_whose_citations_are_known(store):
    asked(store, "One?", [A, B], cited=["a"], grades={"a": "yes", "b": "no"})
    asked(store, "Two?", [A, B], cited=["a", "b"], grades={"a": "no", "b": "unknown"})
    asked(store, "Three?", [A, B], cited=[])
    asked(store, "Four?", [A, B], grades={"a": "yes"})
    reports = by_id(store)
    assert (reports["a"].cited, reports["a"].cited_rate) == (2, pytest.approx(2 / 3))
    assert (reports["b"].cited, reports["b"].cited_rate) == (1, pytest.approx(1 / 3))
    assert [one.graded_yes_rate for one in reports.values()] == pytest.approx([2 / 3, 0.0])
    assert [(one.retrieved, one.known) for one in reports.values()] == [(4, 3), (4, 3)]
    assert (reports["a"].text, reports["a"].source) == ("This is chunk a.", "a.md")


def test_what_was_only_considered_was_not_retrieved(store):
    pool = [TracedChunk(A, 0, 0), TracedChunk(B, 1, 1, returned=False)]
    asked(store, "Which?", pool, grades={"b": "yes"})
    reports = by_id(store)
    assert {key: one.retrieved for key, one in reports.items()} == {"a": 1, "b": 0}
    assert reports["b"].graded_yes_rate == 1.0
    assert reports["b"].click_through == 0.1


def test_a_second_search_of_one_question_retrieves_nothing_twice(store):
    trace_id = asked(store, "Which?", [A, B])
    asked(store, "Which?", [A], trace_id=trace_id, attempt=2, cited=["a"])
    reports = by_id(store)
    assert {key: one.retrieved for key, one in reports.items()} == {"a": 1, "b": 1}


def test_never_cited_are_chunks_that_only_take_a_place(store):
    for number in range(20):
        asked(store, f"Question {number}?", [A, B], cited=["a"])
    for number in range(9):
        asked(store, f"Other {number}?", [C])  # nobody verified these answers
    assert [one.chunk_id for one in never_cited(store)] == ["b"]
    assert never_cited(store, least=21) == []
    assert {one.chunk_id for one in never_cited(store, least=1)} == {"b"}


def test_only_the_last_days_and_people_in_earnest_count(store):
    asked(store, "Which?", [A], at=NOW - timedelta(days=29))
    asked(store, "Which?", [B], traffic="eval")
    asked(store.scoped("other"), "Which?", [B])
    assert chunk_reports(store, now=NOW) == []
    assert [one.chunk_id for one in chunk_reports(store, now=NOW, days=30)] == ["a"]
    assert chunk_reports(store, now=NOW - timedelta(days=60)) == []
