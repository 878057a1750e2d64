"""The numbers for Prometheus: what they say, and who may read them."""

import re
import sys

import pytest
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, SimpleUser
from starlette.routing import Mount
from starlette.testclient import TestClient

from langchain_feedback import FeedbackStore, FeedbackTokens
from langchain_feedback.loop.health import loop_health
from langchain_feedback.server.app import create_app
from langchain_feedback.server.auth import Auth
from tests.unit_tests.loop.health_kit import queued, ran
from tests.unit_tests.server.test_health import filled
from tests.unit_tests.server.test_pages import signed_in

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is missing")

KEY = "k3y-0f-this-test-made-of-many-different-characters"
HERE, THERE = ("127.0.0.1", 4711), ("10.0.0.1", 4711)


@pytest.fixture(autouse=True)
def _no_token(monkeypatch):
    monkeypatch.delenv("LANGCHAIN_FEEDBACK_METRICS_TOKEN", raising=False)


@pytest.fixture
def memory():
    with FeedbackStore("sqlite://") as store:
        yield store


def client_of(app, address=HERE):
    return TestClient(app, base_url="http://127.0.0.1", client=address)


def samples(reply):
    """Each sample: its name and labels, and its value."""
    assert reply.status_code == 200
    return {
        (one.name.removeprefix("langchain_feedback_"), *sorted(one.labels.items())): one.value
        for family in parser.text_string_to_metric_families(reply.text)
        for one in family.samples
    }


def value(found, name, **labels):
    return found[name, *sorted({"namespace": "default", **labels}.items())]


def test_the_numbers_are_those_of_the_health_page(store):
    client = client_of(create_app(filled(store)))
    found, health = samples(client.get("/metrics")), loop_health(store, days=7)
    assert value(found, "state", state="closing") == 1
    assert value(found, "state", state="stuck") == 0
    assert value(found, "queue_items", state="waiting") == health.queue.waiting > 0
    assert value(found, "queue_oldest_seconds") == pytest.approx(
        health.queue.oldest_days * 86_400, rel=1e-3
    )
    for window, rates in (("7d", health.week), ("28d_before", health.before)):
        assert value(found, "answers_ratio", rate="complained", window=window) == rates.complained
    assert value(found, "active_ranker") == 2
    assert value(found, "ranker_score", ranker="newest") == 0.56
    assert value(found, "last_run_failed") == 0
    per_100 = health.signals.per_100["thumbs_down"]
    assert value(found, "signals_per_100_asks_7d", signal="thumbs_down") == per_100 > 0


def test_they_are_read_when_they_are_asked_for(memory):
    client = client_of(create_app(memory))
    assert value(samples(client.get("/metrics")), "queue_items", state="waiting") == 0
    now = loop_health(memory).at
    queued(memory, 1, at=now)
    ran(memory, at=now, state="failed")
    found = samples(client.get("/metrics"))
    assert value(found, "queue_items", state="waiting") == 1
    assert value(found, "state", state="stuck") == 1
    assert value(found, "last_run_failed") == 1


def test_an_empty_store_leaves_out_what_is_not_known(memory):
    found = samples(client_of(create_app(memory)).get("/metrics"))
    names = {name for name, *_ in found}
    assert "state" in names
    assert not {"answers_ratio", "last_run_failed", "queue_oldest_seconds", "ranker_score"} & names


def test_every_name_is_one_that_prometheus_takes_and_holds_no_text_of_anybody(store):
    reply = client_of(create_app(filled(store, words="Secret words"))).get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    for name, *labels in samples(reply):
        assert re.fullmatch(r"[a-z0-9_]+", name)
        assert all(re.fullmatch(r"[a-z0-9_.]+", text) for _, text in labels)
    assert "Secret" not in reply.text
    assert "ann" not in reply.text


def test_openmetrics_is_spoken_to_who_asks_for_it(memory):
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    reply = client_of(create_app(memory)).get("/metrics", headers=accept)
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert reply.text.endswith("# EOF\n")


# -- who may


@pytest.mark.parametrize(
    ("token", "sent", "address", "status"),
    [
        (None, None, HERE, 200),
        (None, None, THERE, 401),
        (None, "Bearer ", THERE, 401),
        ("a-secret", None, HERE, 401),
        ("a-secret", "Bearer a-secret", THERE, 200),
        ("a-secret", "bearer  a-secret ", THERE, 200),
        ("a-secret\n", "Bearer a-secret", THERE, 200),  # as a file has it
        (" \n", None, HERE, 200),
        (" \n", "Bearer ", THERE, 401),
        ("a-secret", "Bearer a-secre", THERE, 401),
        ("a-secret", "Bearer a-secret2", THERE, 401),
        ("a-secret", "Basic a-secret", THERE, 401),
        ("a-secret", "Bearer ä", HERE, 401),
    ],
)
def test_a_token_or_this_machine(memory, token, sent, address, status):
    client = client_of(create_app(memory, metrics_token=token), address)
    headers = {} if sent is None else {"authorization": sent.encode("latin-1")}
    reply = client.get("/metrics", headers=headers)
    assert reply.status_code == status
    if status == 401:
        assert reply.headers["www-authenticate"] == "Bearer"
        assert "langchain_feedback" not in reply.text


def test_the_token_may_stand_in_the_environment_and_an_empty_one_is_none(memory, monkeypatch):
    monkeypatch.setenv("LANGCHAIN_FEEDBACK_METRICS_TOKEN", "from-env\n")
    client = client_of(create_app(memory), THERE)
    assert client.get("/metrics", headers={"authorization": "Bearer from-env"}).status_code == 200
    monkeypatch.setenv("LANGCHAIN_FEEDBACK_METRICS_TOKEN", "")
    app = create_app(memory)
    assert client_of(app, THERE).get("/metrics", headers={"authorization": "Bearer "}
                                     ).status_code == 401  # fmt: skip
    assert client_of(app).get("/metrics").status_code == 200


def test_with_keys_this_machine_is_not_enough_and_a_reviewers_link_is(memory):
    tokens = FeedbackTokens([KEY])
    app = create_app(memory, tokens=tokens)
    client = client_of(app)
    assert client.get("/metrics").status_code == 401
    link = {"reviewer": "Ann", "token": Auth(tokens).invite("Ann")}
    assert client.get("/login", params=link).status_code == 200
    assert client.get("/metrics").status_code == 200


def test_who_names_himself_here_may_and_a_proxys_request_may_not(memory):
    app = create_app(memory)
    assert signed_in(app).get("/metrics").status_code == 200
    reply = client_of(app).get("/metrics", headers={"x-forwarded-for": "8.8.8.8"})
    assert reply.status_code == 401


@pytest.mark.parametrize(
    ("scopes", "status"), [(["metrics"], 200), (["reviewer"], 200), ([], 401), (["other"], 401)]
)
def test_the_hosts_users_need_a_permission(memory, scopes, status):
    pages = create_app(memory)

    async def host(scope, receive, send):
        scope |= {"user": SimpleUser("prom"), "auth": AuthCredentials(scopes)}
        await mounted(scope, receive, send)

    mounted = Starlette(routes=[Mount("/feedback", pages)])
    assert client_of(host).get("/feedback/metrics").status_code == status


def test_without_prometheus_client_it_says_what_to_install(memory, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client.exposition", None)
    reply = client_of(create_app(memory)).get("/metrics")
    assert (reply.status_code, "langchain-feedback[telemetry]" in reply.text) == (501, True)


def test_a_store_that_is_away_is_no_page_of_numbers(tmp_path):
    (tmp_path / "secret-place.db").mkdir()
    app = create_app(FeedbackStore(f"sqlite:///{tmp_path / 'secret-place.db'}"))
    reply = client_of(app).get("/metrics")
    assert reply.status_code == 503
    assert "secret-place" not in reply.text
