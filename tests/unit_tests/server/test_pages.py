"""Each page with something and with nothing to show, mounted and alone, on both databases."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from langchain_feedback import FeedbackStore
from langchain_feedback.loop.corrections import Corrections
from langchain_feedback.loop.labels import reviewed_questions
from langchain_feedback.loop.mining import mine
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.server.app import create_app
from tests.unit_tests.loop.test_review import burst, failing, fine

PAGES = ("queue", "clusters", "sources", "corrections")


def signed_in(app, name="Ann", prefix=""):
    client = TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 4711))
    assert client.post(f"{prefix}/login", data={"name": name}).status_code == 200
    return client


def fields(reply):
    """What the verdict form carries."""
    found = dict(
        re.findall(r'<input type="hidden" name="(csrf|claim)" value="([^"]*)"', reply.text)
    )
    [action] = re.findall(r'action="([^"]*/decide)"', reply.text)
    return action, found


@pytest.fixture
def queued(store):
    fine(store)
    for number in range(2):
        failing(store, f"Question {number}?")
    mine(store, queue=ReviewQueue(store, double=0))
    return store


def test_an_empty_store_says_what_to_do_next(store):
    client = signed_in(create_app(store))
    said = {name: client.get(f"/{name}").text for name in PAGES}
    assert "loop mine" in said["queue"]
    assert "feedback.js" in said["clusters"] or "snippet" in said["clusters"]
    assert "FeedbackStore" in said["sources"]
    assert "owners.toml" in said["corrections"]


def test_a_verdict_is_kept_and_leads_on_to_the_next(queued):
    client = signed_in(create_app(queued))
    first = client.get("/queue")
    action, form = fields(first)
    reply = client.post(action, data=form | {
        "verdict": "confirm", "right": ["refund-timing"], "correction": "Ten days.", "note": "n",
    })  # fmt: skip
    assert "Confirmed" in reply.text
    assert fields(reply)[0] != action
    [label] = reviewed_questions(queued)
    assert (label.right, label.correction, label.reviewers) == (
        ("refund-timing",), "Ten days.", ("Ann",),
    )  # fmt: skip
    item = client.get(action.removesuffix("/decide"))
    assert "It has its verdict" in item.text
    assert "Ten days." in client.get("/corrections").text


def test_all_links_and_forms_stay_under_the_mount(queued):
    app = Starlette(routes=[Mount("/a/b", create_app(queued), name="queue")])
    client = signed_in(app, prefix="/a/b")
    for name in PAGES:
        reply = client.get(f"/a/b/{name}")
        assert reply.status_code == 200
        paths = re.findall(r'(?:href|src|action|formaction)="(/[^"]*)"', reply.text)
        assert paths
        assert all(path.startswith("/a/b/") for path in paths)
    assert client.get("/a/b/static/style.css").status_code == 200
    assert "Path=/a/b" in client.post("/a/b/login", data={"name": "Bo"}, follow_redirects=False
                                      ).headers["set-cookie"]  # fmt: skip


def test_a_late_verdict_is_refused_and_shows_what_was_written(queued):
    app = create_app(queued)
    ann = signed_in(app)
    action, form = fields(ann.get("/queue"))
    reply = ann.post(action, data=form | {"claim": "x", "verdict": "reject", "note": "my words"})
    assert (reply.status_code, "my words" in reply.text) == (409, True)
    assert reviewed_questions(queued) == []


def test_another_reviewers_form_or_claim_is_of_no_use(queued):
    app = create_app(queued)
    ann, bob = signed_in(app), signed_in(app, "Bob")
    action, form = fields(ann.get("/queue"))
    assert bob.post(action, data=form | {"verdict": "reject"}).status_code == 403
    own = fields(bob.get("/queue"))[1]
    assert bob.post(action, data=own | {"verdict": "reject"}).status_code == 409
    shown = bob.get(action.removesuffix("/decide")).text
    assert form["claim"] not in shown
    assert reviewed_questions(queued) == []


def test_chunks_and_none_at_once_come_back_with_the_form_as_it_was(queued):
    client = signed_in(create_app(queued))
    action, form = fields(client.get("/queue"))
    reply = client.post(action, data=form | {
        "verdict": "confirm", "right": ["cancel"], "none_exists": "yes", "note": "kept words",
    })  # fmt: skip
    assert reply.status_code == 422
    assert "kept words" in reply.text
    assert reviewed_questions(queued) == []


def test_skip_search_and_undo_do_what_they_say(queued):
    client = signed_in(create_app(queued))
    action, form = fields(client.get("/queue"))
    found = client.post(
        action.replace("/decide", "/find"), data=form | {"find": "exported", "right": "cancel"}
    )
    assert re.search(r'value="cancel" form="decide" checked', found.text)
    skipped = client.post(action.replace("/decide", "/skip"), data=form)
    assert "Skipped" in skipped.text
    assert fields(skipped)[0] != action
    action, form = fields(skipped)
    client.post(action, data=form | {"verdict": "reject"})
    assert len(reviewed_questions(queued)) == 1
    assert "Taken back" in client.post("/undo", data=form).text
    assert reviewed_questions(queued) == []
    assert "nothing of yours" in client.post("/undo", data=form).text


def test_a_burst_is_dropped_on_the_page(store):
    burst(store)
    mine(store, queue=ReviewQueue(store, double=0))
    client = signed_in(create_app(store))
    reply = client.get("/queue")
    assert "Drop them" in reply.text
    assert "What was found" not in reply.text
    action, form = fields(reply)
    assert client.post(action, data=form | {"verdict": "confirm"}).status_code == 200
    assert store.bursts() == []


def test_corrections_move_on_and_show_before_and_after(queued):
    client = signed_in(create_app(queued))
    action, form = fields(client.get("/queue"))
    client.post(action, data=form | {"verdict": "confirm", "correction": "Ten days."})
    [item] = Corrections(queued).items()
    reply = client.post(f"/corrections/{item.item_id}", data=form | {"state": "acknowledged"})
    assert "Acknowledged" in reply.text
    assert client.post(f"/corrections/{item.item_id}", data=form | {"state": "verified"}
                       ).status_code == 409  # fmt: skip
    assert client.post(f"/corrections/{item.item_id}", data={"state": "fixed"}).status_code == 403
    assert client.post("/corrections/nothing", data=form | {"state": "fixed"}).status_code == 404
    assert [event.actor for event in Corrections(queued).history(item.item_id)][-1] == "Ann"
    assert Corrections(queued).item(item.item_id).state == "acknowledged"
    assert item.item_id not in client.get("/corrections?state=verified").text


@pytest.mark.parametrize("path", ["/nothing", "/items/none", "/corrections/x/y"])
def test_what_is_not_there_is_a_page_that_leads_back(store, path):
    reply = signed_in(create_app(store)).get(path)
    assert reply.status_code == 404
    assert "Back to the queue" in reply.text


def test_a_store_that_is_away_is_said_without_its_address(tmp_path):
    (tmp_path / "secret-place.db").mkdir()
    app = create_app(FeedbackStore(f"sqlite:///{tmp_path / 'secret-place.db'}"))
    client = TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 4711))
    client.post("/login", data={"name": "Ann"}, follow_redirects=False)
    reply = client.get("/queue")
    assert reply.status_code == 503
    assert "secret-place" not in reply.text


def test_too_large_and_odd_forms_are_refused(queued):
    client = signed_in(create_app(queued))
    action, form = fields(client.get("/queue"))
    send = client.post
    assert send(action, data=form | {"note": "x" * 300_000}).status_code == 413
    assert send(action, data=form | {"x": ["1"] * 501}).status_code == 400
    assert send(action, json=form).status_code == 415
    assert send(action, data=form | {"verdict": "maybe"}).status_code == 400


def test_many_reviewers_at_once_each_see_another_item(store):
    fine(store)
    for number in range(6):
        failing(store, f"Question {number}?")
    mine(store, queue=ReviewQueue(store, double=0))
    clients = [signed_in(create_app(store), f"R{number}") for number in range(6)]
    with ThreadPoolExecutor(6) as pool:
        seen = [fields(one)[0] for one in pool.map(lambda client: client.get("/queue"), clients)]
    assert len(set(seen)) == 6
