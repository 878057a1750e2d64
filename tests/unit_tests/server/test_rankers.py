"""Promoting, watching and rolling back from the page: refusals in words, and nothing twice."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from langchain_feedback.loop.health import loop_health
from langchain_feedback.loop.promotion import active_ranker, rollback
from langchain_feedback.server import rankers
from langchain_feedback.server.app import create_app
from langchain_feedback.store.rankers import newest_activation, read_activations
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.loop.health_kit import DAY, NOW, frozen, made_active, trained, tried
from tests.unit_tests.server.test_pages import signed_in


@pytest.fixture
def three(store):
    """The first was promoted, the second may be, the third was rejected."""
    frozen(store, 1)  # the set that they were tried on
    for number in (1, 2, 3):
        trained(store, f"r{number}", at=NOW + number * DAY)
    tried(store, "r1", "promote", at=NOW + DAY)
    made_active(store, "r1", at=NOW + 2 * DAY)
    tried(store, "r2", "promote", at=NOW + 3 * DAY, baseline="r1", gain=0.021)
    tried(store, "r3", "reject", at=NOW + 4 * DAY, baseline="r1", gain=-0.01,
          reasons=["It loses 1.0 points."])  # fmt: skip
    return store


def hidden(page):
    """What every form of the page carries."""
    return dict(re.findall(r'<input type="hidden" name="(csrf|newest)" value="([^"]*)"', page))


def send(client, path, **fields):
    form = hidden(client.get("/rankers").text) | fields
    return client.post(f"/rankers/{path}", data=form)


def active_id(store):
    found = active_ranker(store)
    return found and found.ranker_id


def history(store):
    with reading(store) as connection:
        return read_activations(connection, store.namespace)


def test_each_version_is_told_with_what_became_of_it(three):
    page = signed_in(create_app(three)).get("/rankers").text
    assert "#1 orders the pools" in page
    versions = re.compile(r'id="ranker-(\d)".*?<span class="badge[^>]*>([^<]*)</span>', re.DOTALL)
    assert versions.findall(page) == [
        ("3", "Rejected"), ("2", "Recommended"), ("1", "Active"),
    ]  # fmt: skip
    assert "It loses 1.0 points." in page
    assert "Roll back to the base&#39;s own order" in page
    [primary] = re.findall(r'class="primary">Promote <span class="unseen">(#\d)', page)
    assert primary == "#2"


def test_one_that_passed_its_evaluation_is_promoted_under_ones_name(three):
    reply = send(signed_in(create_app(three)), "change", ranker="r2", does="promote")
    assert (reply.status_code, active_id(three)) == (200, "r2")
    assert "It orders the pools from now on" in reply.text
    assert "Roll back to #1" in reply.text
    last = history(three)[-1]
    assert (last.action, last.actor, last.reason["gain"]) == ("promote", "Ann", 0.021)


def test_one_that_did_not_is_refused_in_words_and_forced_only_on_purpose(three):
    client = signed_in(create_app(three))
    reply = send(client, "change", ranker="r3", does="promote")
    assert (reply.status_code, active_id(three)) == (409, "r1")
    assert "<strong>#3 was not promoted.</strong>" in reply.text
    assert "It loses 1.0 points." in reply.text
    assert "Promote it all the same" in reply.text
    reply = send(client, "change", ranker="r3", does="promote", force="yes")
    assert (reply.status_code, active_id(three)) == (200, "r3")
    assert "without a verdict for it" in reply.text
    assert history(three)[-1].reason["forced"] is True


def test_rolling_back_goes_one_step_and_says_where(three):
    client = signed_in(create_app(three))
    send(client, "change", ranker="r2", does="promote")
    reply = send(client, "rollback")
    assert (active_id(three), "Rolled back" in reply.text) == ("r1", True)
    assert re.search(r'id="ranker-2".*?Rolled back', reply.text, re.DOTALL)
    send(client, "rollback")
    assert active_id(three) is None
    reply = send(client, "rollback")
    assert (reply.status_code, len(history(three))) == (409, 4)
    assert "nothing to roll back" in reply.text
    assert "all the same" not in reply.text


def test_a_page_that_is_out_of_date_changes_nothing(three):
    client = signed_in(create_app(three))
    form = hidden(client.get("/rankers").text)
    rollback(three)
    for path, fields in (
        ("rollback", {}),
        ("change", {"ranker": "r2", "does": "promote"}),
        ("change", {"ranker": "r2", "does": "promote", "force": "yes"}),
    ):
        reply = client.post(f"/rankers/{path}", data=form | fields)
        assert (reply.status_code, "somebody was faster" in reply.text) == (409, True)
        # One click more would have passed the gate by force, where a reload was all it needed.
        assert "all the same" not in reply.text
    assert len(history(three)) == 2


def test_what_is_promoted_while_a_page_is_made_makes_its_forms_out_of_date(three, monkeypatch):
    def meanwhile(store):
        monkeypatch.setattr(rankers, "loop_health", loop_health)
        made_active(three, "r2", at=NOW + 5 * DAY)
        return loop_health(store)

    client = signed_in(create_app(three))
    monkeypatch.setattr(rankers, "loop_health", meanwhile)
    page = client.get("/rankers").text
    assert "#2 orders the pools" in page
    reply = client.post("/rankers/rollback", data=hidden(page))
    assert (reply.status_code, active_id(three)) == (409, "r2")


def test_two_clicks_at_once_roll_back_once(three):
    client = signed_in(create_app(three))
    send(client, "change", ranker="r2", does="promote")
    form = hidden(client.get("/rankers").text)
    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(client.post, "/rankers/rollback", data=form) for _ in range(4)]
        statuses = sorted(one.result().status_code for one in sent)
    assert (statuses, active_id(three)) == ([200, 409, 409, 409], "r1")


def test_one_is_watched_and_not_any_more(three):
    client = signed_in(create_app(three))
    reply = send(client, "change", ranker="r3", does="shadow")
    assert "Stop watching" in reply.text
    send(client, "change", ranker="r3", does="unshadow")
    with reading(three) as connection:
        assert newest_activation(connection, "default", "shadow").ranker_id is None
    assert active_id(three) == "r1"


def test_a_damaged_artifact_is_refused_in_words_even_by_force(three):
    with writing(three) as (connection, _):
        connection.exec_driver_sql("UPDATE lcf_rankers SET artifact = '{}' WHERE ranker_id = 'r2'")
    client = signed_in(create_app(three))
    for force in ({}, {"force": "yes"}):
        reply = send(client, "change", ranker="r2", does="promote", **force)
        assert (reply.status_code, "is damaged" in reply.text) == (409, True)
    assert active_id(three) == "r1"


def test_forms_of_elsewhere_other_names_and_nonsense_are_refused(three):
    client = signed_in(create_app(three))
    form = hidden(client.get("/rankers").text) | {"ranker": "r2", "does": "promote"}
    path = "/rankers/change"
    assert client.post(path, data=form | {"csrf": ""}).status_code == 403
    assert client.post(path, data=form | {"csrf": "A" * 62}).status_code == 403
    assert client.post(path, data=form | {"ranker": "nobody/../r1"}).status_code == 404
    assert client.post(path, data=form | {"does": "delete"}).status_code == 400
    assert client.get(path).status_code == 405
    stranger = TestClient(create_app(three), base_url="http://127.0.0.1", client=("10.1.1.1", 1))
    assert stranger.post(path, data=form).status_code == 401
    assert len(history(three)) == 1


def test_rankers_of_another_namespace_are_not_there(three):
    other = three.scoped("other")
    client = signed_in(create_app(other))
    assert "No ranker was trained yet" in client.get("/rankers").text
    trained(other, "own")
    form = hidden(client.get("/rankers").text) | {"ranker": "r2", "does": "promote"}
    assert client.post("/rankers/change", data=form).status_code == 404
