"""The browser snippet in a real Chromium, on a page of another origin than the endpoint's."""

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest
import uvicorn
from langchain_core.documents import Document
from sqlalchemy import select
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from langchain_feedback.server.signals import mount_signals
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import signals
from langchain_feedback.store.transactions import reading
from langchain_feedback.tokens import FeedbackTokens
from langchain_feedback.traces import new_trace_id
from tests.chromium import chromium

TOKENS = FeedbackTokens(["a secret that only this test knows, 32 bytes"])
CHUNKS = [Document(f"Chunk {n}.", id=f"c{n}") for n in range(3)]

PAGE = """<!doctype html><html><body>
<script src="{host}/feedback/v1/feedback.js" defer></script>
<article data-feedback-token="{token}">
  <p data-feedback-answer>A refund takes fourteen days, counted from the first payment.</p>
  <p id="short">Refund</p>
  <a data-feedback-source="c0" href="#c0">Zero</a>
  <a data-feedback-source="c1" href="#c1">One
    <button id="wrong" data-feedback-signal="wrong_source">x</button></a>
  <a data-feedback-source="c2" href="/other"><b id="two">Two</b></a>
  <textarea data-feedback-text></textarea>
  <button id="up" data-feedback-signal="thumbs_up"><i id="icon">+</i></button>
  <button id="four" data-feedback-signal="rating" data-feedback-rating="4">4</button>
  <button id="fix" data-feedback-signal="correction">fix</button>
</article>
<a id="away" href="/other">elsewhere</a> <a id="plain" href="#x">plain</a>
</body></html>"""


@contextmanager
def served(app):
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


class Host:
    """The endpoint on one origin, the page on another, and what reached the first."""

    def __init__(self, store):
        self.store, self.requests, self.pages = store, [], {}
        self._app = Starlette()
        mount_signals(self._app, store, TOKENS)

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            kinds = dict(scope["headers"]).get(b"content-type", b"").decode()
            self.requests.append((scope["method"], scope["path"], kinds))
        await self._app(scope, receive, send)

    def answered(self):
        trace_id = new_trace_id()
        self.store.record_trace(trace_id, "How long?", CHUNKS, actor="ann")
        return trace_id, TOKENS.issue(trace_id, actor="ann")

    def rows(self, trace_id):
        with reading(self.store) as connection:
            found = (
                select(signals)
                .where(signals.c.trace_id == trace_id)
                .order_by(signals.c.client_time)
            )
            return [row for row in connection.execute(found) if row.signal != "source_skipped"]

    def wait_for(self, trace_id, number):
        until = time.monotonic() + 10
        while len(self.rows(trace_id)) < number and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.2)  # for what should not come
        return self.rows(trace_id)


def said(rows):
    """What came: each event is a request of its own, and one may overtake another."""
    return sorted(row.signal for row in rows)


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    path = tmp_path_factory.mktemp("snippet") / "feedback.db"
    with FeedbackStore(f"sqlite:///{path}") as store:
        yield Host(store)


@pytest.fixture(scope="module")
def origins(host):
    async def page(request):
        body = host.pages.get(request.url.path, "<p>another page</p>")
        return HTMLResponse(body)

    pages = Starlette(routes=[Route("/{name}", page)])
    with served(host) as endpoint, served(pages) as site:
        yield endpoint, site


@pytest.fixture
def page(browser, host, origins):
    endpoint, site = origins
    host.requests.clear()
    context = browser.new_context()
    opened = context.new_page()
    opened.errors = []
    opened.on("pageerror", lambda error: opened.errors.append(str(error)))
    opened.on(
        "console", lambda said: opened.errors.append(said.text) if said.type == "error" else None
    )

    def show(token, body=PAGE, name="/page"):
        host.pages[name] = body.replace("{host}", endpoint).replace("{token}", token)
        opened.goto(site + name)

    opened.show = show
    yield opened
    context.close()
    assert opened.errors == []


def select_text(page, query):
    page.evaluate(
        "query => getSelection().selectAllChildren(document.querySelector(query))", query
    )
    page.keyboard.press("Control+c")


def sent(host):
    return [one for one in host.requests if one[1] == "/feedback/v1/signals"]


def test_each_thing_arrives_once_from_another_origin_without_a_preflight_check9(page, host):
    trace_id, token = host.answered()
    page.show(token)
    page.click("#icon")
    page.dblclick("#icon")
    select_text(page, "[data-feedback-answer]")
    select_text(page, "[data-feedback-answer]")
    page.wait_for_timeout(300)
    page.click("#two")  # leaves the page
    page.wait_for_url("**/other")
    rows = host.wait_for(trace_id, 4)
    assert Counter(row.signal for row in rows) == {
        "thumbs_up": 1, "copy": 1, "source_click": 1, "dwell": 1,
    }  # fmt: skip
    by_name = {row.signal: row for row in rows}
    assert by_name["source_click"].target == "c2"
    assert 250 <= by_name["dwell"].value < 30_000
    assert abs((by_name["copy"].client_time - by_name["copy"].received_at).total_seconds()) < 30
    # All are the asker's own.
    assert {row.actor for row in rows} == {None}
    assert {(method, kind) for method, _, kind in sent(host)} == {
        ("POST", "text/plain;charset=UTF-8")
    }
    with reading(host.store) as connection:
        skipped = select(signals.c.target).where(
            signals.c.trace_id == trace_id, signals.c.signal == "source_skipped"
        )
        assert sorted(connection.execute(skipped).scalars()) == ["c0", "c1"]


def test_buttons_say_what_they_say_with_the_words_beside_them(page, host):
    trace_id, token = host.answered()
    page.show(token)
    page.click("#four")
    page.fill("textarea", "It is thirty days.")
    page.click("#fix")
    page.click("#wrong")
    page.click("#plain")
    page.click("#up")
    rows = host.wait_for(trace_id, 4)
    assert [(row.signal, row.target, row.rating) for row in rows] == [
        ("rating", "", 4), ("correction", "", None), ("wrong_source", "c1", None),
        ("thumbs_up", "", None),
    ]  # fmt: skip
    assert (rows[1].correction, rows[1].comment) == ("It is thirty days.", None)
    assert rows[2].comment == "It is thirty days."
    assert page.locator("[data-feedback-sent]").count() == 4


def test_too_little_copied_says_nothing_and_another_tab_is_no_return(page, host):
    trace_id, token = host.answered()
    page.show(token, PAGE.replace("fourteen", "fourteen " * 20))
    page.evaluate("() => getSelection().selectAllChildren(document.querySelector('#short'))")
    page.keyboard.press("Control+c")
    page.click("#up", button="right")
    page.click("[data-feedback-source=c0]")
    page.click("[data-feedback-source=c0]")
    page.click("#away")
    page.wait_for_url("**/other")
    assert said(host.wait_for(trace_id, 2)) == ["dwell", "source_click"]


def test_answers_that_come_later_count_and_tokens_that_come_later_too(page, host):
    (first, token), (second, later) = host.answered(), host.answered()
    page.show("", PAGE.replace(' data-feedback-token="{token}"', ""))
    page.evaluate(
        "token => document.querySelector('article').dataset.feedbackToken = token", token
    )
    page.evaluate(
        """token => document.body.insertAdjacentHTML("afterbegin",
        `<div data-feedback-token="${token}"><a id="new" data-feedback-source="c1"
        href="#">One</a></div>`)""",
        later,
    )
    page.wait_for_timeout(100)
    page.click("#new")
    page.click("#up")
    page.goto("about:blank")
    assert said(host.wait_for(first, 2)) == ["dwell", "thumbs_up"]
    assert said(host.wait_for(second, 2)) == ["dwell", "source_click"]


def test_it_does_without_random_uuid_and_without_beacons(page, host):
    trace_id, token = host.answered()
    page.add_init_script(
        "delete Crypto.prototype.randomUUID; delete Navigator.prototype.sendBeacon"
    )
    page.show(token)
    page.click("#up")
    page.click("#away")
    page.wait_for_url("**/other")
    rows = host.wait_for(trace_id, 2)
    assert said(rows) == ["dwell", "thumbs_up"]
    assert len({row.event_id for row in rows}) == 2
    assert {method for method, _, _ in sent(host)} == {"POST"}


def test_a_page_may_name_another_endpoint(page, host, origins):
    trace_id, token = host.answered()
    named = PAGE.replace("defer", 'defer data-feedback-url="{host}/feedback/v1/signals?x=1"')
    page.show(token, named)
    page.click("#up")
    assert [row.signal for row in host.wait_for(trace_id, 1)] == ["thumbs_up"]


def test_a_page_can_show_what_the_server_says_of_an_altered_token_check9(page, host, origins):
    trace_id, token = host.answered()
    page.show(token)
    altered = token[:-1] + ("A" if token[-1] != "A" else "B")
    answer = page.evaluate(
        """([url, token]) => fetch(url, {method: "POST", body: JSON.stringify({events: [
          {event_id: "e1", token, signal: "thumbs_up"}]})}).then(answer => answer.text())""",
        [f"{origins[0]}/feedback/v1/signals", altered],
    )
    assert json.loads(answer)["events"][0]["status"] == "rejected"
    assert host.rows(trace_id) == []
    assert {method for method, _, _ in sent(host)} == {"POST"}


def test_the_email_form_works_with_javascript_off(browser, host, origins):
    trace_id, token = host.answered()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{origins[0]}/feedback/v1/rate?token={token}&signal=thumbs_down")
    assert host.rows(trace_id) == []
    page.fill("textarea", "Wrong <b>number</b>.")
    page.click("button")
    assert page.inner_text("h1") == "Thank you"
    [row] = host.rows(trace_id)
    assert (row.signal, row.comment) == ("thumbs_down", "Wrong <b>number</b>.")
    context.close()
