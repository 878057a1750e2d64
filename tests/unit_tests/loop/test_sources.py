"""Which documents do the damage."""

from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.documents import Document

from langchain_feedback.loop.sources import source_reports
from langchain_feedback.store.alarms import close_alarm, raise_alarm
from langchain_feedback.store.owner_items import move_item, open_item
from langchain_feedback.store.transactions import writing
from tests.unit_tests.loop.kit import asked, chunk, said

NOW = datetime.now(UTC) + timedelta(minutes=1)
A, A2, B = chunk("a", source="a.md"), chunk("a2", source="a.md"), chunk("b", source="b.md")


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def by_source(store, **kwargs):
    return {one.source: one for one in source_reports(store, now=NOW, **kwargs)}


def answered(store, documents, days=1.0, rating=None, **kwargs):
    trace_id = asked(store, "Which?", documents, at=ago(days), **{"status": "answered"} | kwargs)
    if rating is not None:
        said(store, trace_id, "rating", rating=rating)
    return trace_id


def test_damage_is_how_many_answers_rest_on_it_times_its_age(store):
    answered(store, [A], days=20, cited=["a"])
    answered(store, [A, A2], days=2, cited=["a", "a2"])
    answered(store, [B], days=4, cited=["b"], rating=1)
    answered(store, [B], days=3, cited=["b"])
    reports = source_reports(store, now=NOW)
    assert [one.source for one in reports] == ["a.md", "b.md"]
    a, b = reports
    assert (a.answers, a.failures, b.answers, b.failures) == (2, 0, 2, 1)
    assert (a.age_days, b.age_days) == (pytest.approx(20), pytest.approx(4))
    assert (a.damage, b.damage) == (pytest.approx(40), pytest.approx(8))


def test_a_source_is_as_old_as_its_last_change(store):
    answered(store, [A, A2], days=25)
    answered(store, [chunk("a", "Another text.", source="a.md"), A2], days=5)
    # A chunk that is found for the first time is no change.
    answered(store, [chunk("a3", source="a.md")], days=1)
    assert by_source(store)["a.md"].age_days == pytest.approx(5)


def test_its_age_goes_further_back_than_the_report(store):
    answered(store, [A], days=100)
    answered(store, [A], days=1)
    [report] = source_reports(store, now=NOW)
    assert (report.answers, report.age_days) == (1, pytest.approx(100))


def test_answers_rest_on_what_they_quote(store):
    answered(store, [A, B], cited=["a"])
    answered(store, [A, B])  # citations are not known: it rests on both
    answered(store, [A, B], cited=[])
    answered(store, [A, B], status="abstained")
    answered(store, [A, B], cited=["b"], grounded=False, rating=1)
    reports = by_source(store)
    assert {source: one.answers for source, one in reports.items()} == {"a.md": 2, "b.md": 1}
    assert {one.failures for one in reports.values()} == {0}
    rates = {source: one.cited_rate for source, one in reports.items()}
    assert rates == {"a.md": pytest.approx(1 / 3), "b.md": pytest.approx(1 / 3)}


def test_people_who_name_a_source_blame_that_one(store):
    trace_id = answered(store, [A, B], cited=["a", "b"])
    said(store, trace_id, "wrong_source", target="b", actor="ann")
    reports = by_source(store)
    assert {source: one.failures for source, one in reports.items()} == {"a.md": 0, "b.md": 1}
    assert {one.answers for one in reports.values()} == {1}


def test_it_shows_alarms_items_and_clicks(store):
    trace_id = answered(store, [A, B])
    said(store, trace_id, "source_click", target="b", actor="ann")
    with writing(store) as (connection, _):
        first, over = (
            raise_alarm(connection, store.namespace, "a.md", kind, NOW, {})
            for kind in ("reviewer", "gone")
        )
        close_alarm(connection, store.namespace, over, NOW)
        items = [
            open_item(connection, store.namespace, about=about, kind="correction", now=NOW,
                      text="It is wrong.", source="a.md")[0]
            for about in "xyz"
        ]  # fmt: skip
        move_item(connection, items[0], "verified", now=NOW)
        move_item(connection, items[1], "fixed", now=NOW)
        open_item(connection, "other", about="x", kind="correction", now=NOW, text="Wrong.",
                  source="b.md")  # fmt: skip
    reports = by_source(store)
    assert [alarm.alarm_id for alarm in reports["a.md"].alarms] == [first]
    assert (reports["a.md"].open_items, reports["b.md"].open_items) == (2, 0)
    assert reports["a.md"].click_through == pytest.approx(1 / 11)
    assert reports["b.md"].click_through == pytest.approx(2 / 10.5)


def test_a_source_with_an_alarm_is_listed_though_nobody_asked(store):
    with writing(store) as (connection, _):
        raise_alarm(connection, store.namespace, "gone.md", "gone", NOW, {})
    [report] = source_reports(store, now=NOW)
    assert (report.source, report.answers, report.age_days, report.damage) == (
        "gone.md", 0, None, 0.0,
    )  # fmt: skip


def test_other_namespaces_tests_and_chunks_without_a_source_are_left_out(store):
    answered(store.scoped("other"), [A])
    answered(store, [B], traffic="playground")
    answered(store, [Document("No source.", id="x")])
    answered(store, [B], days=40)
    assert source_reports(store, now=NOW) == []
    assert [one.source for one in source_reports(store, now=NOW, days=50)] == ["b.md"]
