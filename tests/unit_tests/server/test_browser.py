"""The review pages in a real browser: two people, keys, hostile text, and no JavaScript."""

import re
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn
from langchain_core.documents import Document

from langchain_feedback import FeedbackStore
from langchain_feedback.loop.labels import reviewed_questions
from langchain_feedback.loop.mining import mine
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.server.app import create_app
from tests.chromium import chromium
from tests.unit_tests.loop.kit import asked
from tests.unit_tests.loop.test_review import failing, fine

HOSTILE = (
    "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>"
    "<style>body{display:none}</style> [click](javascript:window.hurt=3) \u202eevil"
)
PAGES = ("queue", "clusters", "sources", "corrections")


@contextmanager
def served(store):
    config = uvicorn.Config(create_app(store), host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture
def filled(tmp_path):
    """A queue of four items over the handbook."""
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}") as store:
        fine(store)
        for number in range(4):
            failing(store, f"Question {number}?")
        mine(store, queue=ReviewQueue(store, double=0))
        yield store


@pytest.fixture
def url(filled):
    with served(filled) as address:
        yield address


def signed_in(browser, url, name, **options):
    context = browser.new_context(**options)
    page = context.new_page()
    page.goto(f"{url}/login")
    page.fill("#name", name)
    page.click("text=Begin")
    page.wait_for_url("**/queue*")
    return page


def shown(page):
    return page.inner_text("h1")


def press(page, key):
    """Press a key that leads to another page, and wait for it."""
    with page.expect_navigation():
        page.keyboard.press(key)


def test_two_reviewers_never_see_the_same_item_and_each_keeps_his_own_check7(browser, url):
    ann, bob = signed_in(browser, url, "Ann"), signed_in(browser, url, "Bob")
    assert shown(ann) != shown(bob)
    before = shown(ann)
    ann.reload()
    assert shown(ann) == before
    seen = {shown(ann), shown(bob)}
    press(ann, "2")
    press(bob, "3")
    assert not {shown(ann), shown(bob)} & seen
    assert shown(ann) != shown(bob)


def test_a_whole_batch_by_keyboard_with_undo_check7(browser, url, filled):
    page = signed_in(browser, url, "Ann")
    first = shown(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    press(page, "1")
    press(page, "u")  # it opens again, as it was
    assert shown(page) == first
    assert reviewed_questions(filled) == []
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    press(page, "1")
    page.keyboard.press("n")
    press(page, "2")
    press(page, "3")
    press(page, "1")
    assert "queue" in page.url
    assert page.query_selector("form#decide") is None
    labels = {label.question: label for label in reviewed_questions(filled)}
    assert len(labels) == 4
    assert labels[first].right == ("refund-timing",)
    assert sum(label.none_exists for label in labels.values()) == 1


def test_hostile_text_of_a_chunk_stays_text_check7(browser, tmp_path):
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}") as store:
        fine(store)
        source = "javascript:window.hurt=4"
        chunks = [Document(HOSTILE, id='x"><script>', metadata={"source": source, "url": source})]
        trace_id = asked(store, f"Why? {HOSTILE}", chunks, actor="u", answer=HOSTILE)
        for name in ("ann", "bob"):
            store.rate(trace_id, 1, actor=name, comment=HOSTILE, correction=HOSTILE)
        mine(store, queue=ReviewQueue(store, double=0))
        with served(store) as url:
            page = signed_in(browser, url, "<b>Ann</b>")
            asked_of = []
            page.on("request", lambda request: asked_of.append(request.url))
            for name in PAGES:
                page.goto(f"{url}/{name}")
                assert page.evaluate("window.hurt") is None
                assert page.is_visible("h1")
                assert page.query_selector("a[href^='javascript']") is None
                assert page.query_selector("main script, main img, main style") is None
            page.goto(f"{url}/queue")
            assert "<script>window.hurt = 1</script>" in page.inner_text("main")
            assert all(one.startswith(url) for one in asked_of)


def test_a_form_without_its_token_or_with_a_bad_cookie_is_refused_check7(browser, url, filled):
    page = signed_in(browser, url, "Ann")
    action = page.get_attribute("form#decide", "action")
    claim = page.get_attribute("form#decide input[name=claim]", "value")
    send = page.context.request.post
    for csrf in ({}, {"csrf": "A" * 62}):
        reply = send(f"{url}{action}", form={"verdict": "reject", "claim": claim, **csrf})
        assert reply.status == 403
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
    page.context.add_cookies([cookie | {"value": cookie["value"].replace("Ann", "Bob")}])
    page.goto(f"{url}/queue")
    assert page.is_visible("text=Who are you?")
    assert reviewed_questions(filled) == []


def test_single_keys_can_be_turned_off_for_good(browser, url, filled):
    page = signed_in(browser, url, "Ann")
    page.keyboard.press("?")
    page.uncheck("#keys-on")
    page.reload()
    page.keyboard.press("1")
    page.keyboard.press("?")
    assert page.get_attribute("#help", "open") is None
    assert reviewed_questions(filled) == []


def test_it_works_without_javascript_check7(browser, url, filled):
    page = signed_in(browser, url, "Ann", java_script_enabled=False)
    question = shown(page)
    page.check("#chunk-3 input[type=checkbox]")
    page.fill("#correction", "Ten days.")
    page.fill("#find", "refund days")
    page.click("#find-button")
    assert page.is_checked("#chunk-3 input[type=checkbox]")
    page.click("button.is-confirm")
    [label] = reviewed_questions(filled)
    assert (label.question, label.right, label.correction) == (
        question, ("refund-timing",), "Ten days.",
    )  # fmt: skip
    page.click("text=Undo my last verdict")
    assert shown(page) == question
    assert reviewed_questions(filled) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_is_accessible_and_fits_a_phone_check7(browser, url, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = signed_in(browser, url, "Ann", color_scheme=scheme)
    decided = page.get_attribute("form#decide", "action").removesuffix("/decide")
    press(page, "3")
    for name in (*PAGES, decided.lstrip("/"), "nothing"):
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


def test_every_response_forbids_what_it_does_not_need(browser, url):
    page = signed_in(browser, url, "Ann")
    reply = page.goto(f"{url}/queue")
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    nonce = re.search(r"nonce-([\w-]+)", policy)[1]
    assert f'nonce="{nonce}"' in reply.text()
    assert re.search(r"nonce-([\w-]+)", page.goto(f"{url}/queue").headers[
        "content-security-policy"])[1] != nonce  # fmt: skip
