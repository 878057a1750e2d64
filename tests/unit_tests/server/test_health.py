"""The page that says whether the loop closes: words, plots, and what a telephone shows."""

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from langchain_feedback import FeedbackStore
from langchain_feedback.server.app import create_app
from langchain_feedback.server.plots import Series, draw, spark
from tests.chromium import chromium
from tests.unit_tests.loop.health_kit import DAY, made_active, queued, ran, trained, tried
from tests.unit_tests.loop.kit import asked, said
from tests.unit_tests.server.test_browser import HOSTILE, served
from tests.unit_tests.server.test_browser import signed_in as in_browser
from tests.unit_tests.server.test_pages import signed_in

PAGES = ("health", "rankers")


def parsed(drawing):
    return ET.fromstring(drawing)  # noqa: S314  our own


def filled(store, *, words="Why?"):
    """Something in each part of both pages."""
    now = datetime.now(UTC)
    for number in range(12):
        trace_id = asked(
            store, f"{words} {number % 3}", ["a", "b"], actor=f"u{number}",
            at=now - 2.5 * number * DAY, grounded=number % 4 > 0, cited=["a"],
            status="abstained" if number % 5 == 4 else "answered",
        )  # fmt: skip
        name = "thumbs_down" if number % 3 else "thumbs_up"
        said(store, trace_id, name, actor="ann", at=now - 2.5 * number * DAY)
        queued(store, number, at=now - 3 * number * DAY, right=["a"],
               decided=now - DAY if number % 2 else None,
               snapshot={"chunks": [{"chunk_id": "a", "grade": "yes"}],
                         "grounded": True})  # fmt: skip
    for number, verdict in enumerate(("advice", "promote", "reject"), 1):
        at = now - (20 - number) * DAY
        trained(store, f"r{number}", at=at)
        run_id = tried(store, f"r{number}", verdict, at=at, score=0.5 + number / 50,
                       reasons=[words], worst_drop=0.2)  # fmt: skip
        if verdict == "promote":
            made_active(store, f"r{number}", by=run_id, at=now - DAY)
    ran(store, at=now - DAY)
    return store


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


def test_an_empty_store_says_what_to_do_next(store):
    client = signed_in(create_app(store))
    page = client.get("/health").text
    assert "The loop is <strong>collecting</strong>" in page
    assert "0 of 30 reviewed questions" in page
    assert "loop run" in page
    rankers = client.get("/rankers").text
    assert "No ranker was trained yet" in rankers
    assert "Roll back" not in rankers


def test_the_verdict_the_numbers_and_the_plots_are_there(store):
    page = signed_in(create_app(filled(store))).get("/health").text
    assert '<section class="card state-of is-good"' in page
    assert "The active ranker #2 gains +5.0 points on 120 cases" in page
    assert "Last run: done" in page
    assert len(re.findall("<svg class=.plot-svg", page)) == 2
    assert len(re.findall("<svg class=.spark-svg", page)) == 5
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        root = parsed(drawing)
        assert root.get("aria-label") or root.get("aria-hidden") == "true"
    assert re.search(r"<th scope=.row.>#3 .*?<td>0.560</td><td>0.550</td><td>\+1.0</td>", page)


def test_it_is_for_reviewers_only(store):
    client = TestClient(create_app(store), base_url="http://127.0.0.1", client=("10.0.0.1", 1))
    for name in PAGES:
        assert client.get(f"/{name}").status_code == 401


@pytest.mark.parametrize(("given", "days"), [("7", 7), ("0", 1), ("9999", 365), ("x", 28)])
def test_days_are_read_within_limits(given, days):
    with FeedbackStore("sqlite://") as store:
        page = signed_in(create_app(store)).get(f"/health?days={given}").text
    weeks = re.search(r"Week by week.*?<tbody>(.*?)</tbody>", page, re.DOTALL)[1].count("<tr>")
    assert weeks == max(4, -(-days // 7))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_pages_are_accessible_and_fit_a_telephone(browser, tmp_path, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with (
        FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}") as store,
        served(filled(store)) as url,
    ):
        page = in_browser(browser, url, "Ann", color_scheme=scheme)
        said_by_page = []
        page.on("console", lambda message: said_by_page.append(message.text))
        for name in PAGES:
            page.set_viewport_size({"width": 1280, "height": 800})
            page.goto(f"{url}/{name}")
            found = [
                (one["id"], [node["target"] for node in one["nodes"]])
                for one in axe.run(page).response["violations"]
                if one["impact"] in ("serious", "critical")
            ]
            assert found == []
            page.set_viewport_size({"width": 400, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= 400
            box = page.locator(".chart-area svg").first.bounding_box()
            assert 200 < box["width"] < 400
            assert box["height"] > 100
            size = page.evaluate(
                "parseFloat(getComputedStyle(document.querySelector('.chart-ticks')).fontSize)"
            )
            assert size > 11  # the text of axes does not shrink with the drawing
        assert said_by_page == []  # nothing that the policy had to refuse


def test_hostile_text_of_reports_and_signals_stays_text(browser, tmp_path):
    with (
        FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}") as store,
        served(filled(store, words=HOSTILE)) as url,
    ):
        trained(store, "<b>r9</b>/../x?y")
        page = in_browser(browser, url, "Ann")
        for name in PAGES:
            page.goto(f"{url}/{name}")
            assert page.evaluate("window.hurt") is None
            assert page.query_selector("main script, main img, main style, main b") is None
        assert "<script>window.hurt = 1</script>" in page.inner_text("main")


# -- plots

VALUES = st.lists(st.none() | st.floats(-1e6, 1e6) | st.integers(0, 10_000), min_size=1)


@given(VALUES, st.booleans(), st.sampled_from(["line", "bar", "dot"]))
def test_every_value_is_drawn_inside_the_axes(values, from_zero, kind):
    if from_zero:
        values = [None if value is None else abs(value) for value in values]
    plot = draw([Series("One", values, kind)], "A plot", from_zero=from_zero)
    high, middle, low = plot.ticks
    assert low < middle < high
    known = [value for value in values if value is not None]
    # A millionth of the plot's height is less than a pixel.
    slack = 1e-6 * max([high - low, *map(abs, known)])
    assert all(low - slack <= value <= high + slack for value in known)
    root = parsed(plot.svg)
    assert root.get("viewBox") == f"0 0 {len(values) * 100} 100"
    drawn = " ".join(one.get("d") for one in root.iter() if "dots" in one.get("class", ""))
    heights = [float(y) for y in re.findall(r"M[\d.e+]+ (-?[\d.]+)", drawn)]
    assert len(heights) == (0 if kind == "bar" else len(known))
    assert all(-0.1 <= y <= 100.1 for y in heights)


def test_whole_numbers_have_whole_ticks():
    assert draw([Series("One", [1, 0])], "").ticks == (2, 1, 0)
    assert draw([Series("One", [])], "").ticks == (1, 0.5, 0)


def test_a_line_has_a_gap_where_nothing_is_known():
    plot = draw([Series("One", [1, 2, None, 3, 4])], "")
    [line] = re.findall(r'class="line tone-1" d="([^"]*)"', plot.svg)
    assert [step[0] for step in re.findall(r"[ML]\d+", line)] == ["M", "L", "M", "L"]


def test_bars_stand_beside_each_other():
    plot = draw([Series("a", [2, 4], "bar"), Series("b", [4, 0], "bar", 2)], "")
    rects = [
        {name: float(value) for name, value in one.attrib.items()}
        for one in parsed(plot.svg).iter()
        if one.tag.endswith("rect")
    ]
    assert [(one["y"], one["height"]) for one in rects] == [(50, 50), (0, 100), (0, 100)]
    assert rects[0]["x"] + rects[0]["width"] <= rects[2]["x"]


def test_names_and_labels_are_escaped_and_series_of_other_lengths_refused():
    assert 'aria-label="&#34;&lt;b&gt;"' in spark([1], '"<b>')
    with pytest.raises(ValueError, match="same places"):
        draw([Series("a", [1]), Series("b", [1, 2])], "")
