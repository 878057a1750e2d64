"""Finding the question that somebody complains about, late and in his own words."""

from datetime import UTC, datetime, timedelta

import pytest

from langchain_feedback.loop.finding import find_traces
from tests.unit_tests.loop.kit import asked, said

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def history(store):
    for number, question in enumerate(["How long does a refund take?", "Who signs 100% of it?"]):
        trace_id = f"aaaa{number}111-trace"
        asked(store, question, ["c"], trace_id=trace_id, answer="Within 14_days.",
              at=NOW + timedelta(hours=number))  # fmt: skip
    said(store, "aaaa0111-trace", "thumbs_down", comment="It took a MONTH.", actor="ann")
    said(store, "aaaa1111-trace", "correction", correction="The clerk does.", actor="ben")
    return store


def found(store, text, **options):
    return [one.trace_id[4] for one in find_traces(store, text, **options)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("refund", ["0"]),
        ("REFUND month", ["0"]),
        ("refund clerk", []),
        ("within", ["1", "0"]),
        ("the clerk does", ["1"]),
        ("aaaa0", ["0"]),
        ("AAAA", ["1", "0"]),
        ("aaa", []),
        ("100%", ["1"]),
        ("%", ["1"]),
        ("14_days", ["1", "0"]),
        ("1__days", []),
        ("\\\\", []),
        ("'; DROP TABLE lcf_traces; --", []),
    ],
)
def test_every_word_is_somewhere_in_the_question_answer_or_what_was_said(history, text, expected):
    assert found(history, text) == expected


def test_it_says_what_was_said(history):
    [one] = find_traces(history, "refund")
    assert one.said == ("thumbs_down: It took a MONTH.",)
    assert (one.question, one.answer) == ("How long does a refund take?", "Within 14_days.")
    assert one.created_at == NOW


def test_what_was_taken_back_is_not_found(history):
    event_id = said(history, "aaaa0111-trace", "copy", comment="Zebra.", actor="eve")
    assert found(history, "zebra") == ["0"]
    history.retract(event_id)
    assert found(history, "zebra") == []


def test_it_is_bounded_and_keeps_to_its_namespace(history):
    assert found(history, "within", limit=1) == ["1"]
    other = history.scoped("other")
    assert found(other, "within") == []
    asked(other, "Within what?", [], at=NOW + timedelta(days=1))
    assert found(history, "within", limit=1) == ["1"]
    for limit in (0, 201):
        with pytest.raises(ValueError, match="limit"):
            find_traces(history, "within", limit=limit)
    with pytest.raises(ValueError, match="nothing to look for"):
        find_traces(history, "  ")
    assert found(history, "word " * 5000) == []
