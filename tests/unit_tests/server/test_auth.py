"""Who gets in to review: links, the host's users, and whoever sits at this machine."""

from datetime import UTC, datetime, timedelta

import pytest
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, SimpleUser
from starlette.routing import Mount
from starlette.testclient import TestClient

from langchain_feedback import FeedbackStore, FeedbackTokens
from langchain_feedback.server.app import create_app
from langchain_feedback.server.auth import Auth

TOKENS = FeedbackTokens(["k3y-0f-this-test-made-of-many-different-characters"])


@pytest.fixture
def memory():
    with FeedbackStore("sqlite://") as store:
        yield store


def client_of(app, host="127.0.0.1", base_url="http://127.0.0.1", **options):
    return TestClient(app, base_url=base_url, client=(host, 4711), **options)


def link(name, **options):
    token = TOKENS.issue(f"reviewer:{name}", scope="review", **options)
    return {"reviewer": name, "token": token}


def test_a_link_opens_a_session_whose_cookie_scripts_cannot_read(memory):
    client = client_of(create_app(memory, tokens=TOKENS), "9.9.9.9", "https://reviews.test")
    assert client.get("/queue").status_code == 401
    reply = client.get("/login", params=link("Ann Lee"), follow_redirects=False)
    assert (reply.status_code, reply.headers["location"]) == (303, "/queue")
    cookie = reply.headers["set-cookie"].lower()
    for part in ("httponly", "samesite=lax", "secure", "max-age=28800", "path=/"):
        assert part in cookie
    assert "Ann Lee" in client.get("/queue").text


@pytest.mark.parametrize(
    "query",
    [
        link("Ann") | {"reviewer": "Ben"},
        link("Ann", lifetime=timedelta(hours=1), now=datetime(2020, 1, 1, tzinfo=UTC)),
        {"reviewer": "Ann", "token": TOKENS.issue("reviewer:Ann", scope="owner")},
        {"reviewer": "Ann", "token": "A" * 62},
        link(" "),
    ],
)
def test_a_link_of_another_name_time_or_purpose_opens_nothing(memory, query):
    client = client_of(create_app(memory, tokens=TOKENS))
    reply = client.get("/login", params=query)
    assert (reply.status_code, client.cookies.get("lcf_reviewer")) == (401, None)
    assert "loop invite" in reply.text


def test_every_change_of_the_cookie_is_refused(memory):
    client = client_of(create_app(memory, tokens=TOKENS))
    client.get("/login", params=link("Ann"))
    value = client.cookies["lcf_reviewer"]
    assert client.get("/queue").status_code == 200
    for at in range(len(value)):
        other = "B" if value[at] != "B" else "C"
        client.cookies.clear()
        client.cookies.set("lcf_reviewer", value[:at] + other + value[at + 1 :])
        assert client.get("/queue").status_code == 401, at


def test_with_keys_a_name_is_not_enough_even_here(memory):
    client = client_of(create_app(memory, tokens=TOKENS))
    assert client.post("/login", data={"name": "Ann"}).status_code == 403


def test_without_keys_this_machine_is_asked_for_a_name_once(memory):
    client = client_of(create_app(memory))
    assert "Who are you?" in client.get("/queue").text
    assert client.post("/login", data={"name": "\n"}).status_code == 422
    assert "Ann" in client.post("/login", data={"name": " Ann "}).text
    assert client.get("/queue").status_code == 200


@pytest.mark.parametrize(
    ("host", "base_url", "headers"),
    [
        ("10.0.0.7", "http://127.0.0.1", {}),
        ("127.0.0.1", "http://evil.test", {}),  # a name that was made to point here
        ("127.0.0.1", "http://localhost", {"x-forwarded-for": "9.9.9.9"}),
        ("127.0.0.1", "http://localhost", {"forwarded": "for=9.9.9.9"}),
        ("testclient", "http://localhost", {}),
    ],
)
def test_without_keys_everybody_else_is_told_what_to_set(memory, host, base_url, headers):
    client = client_of(create_app(memory), host, base_url, headers=headers)
    reply = client.get("/queue")
    assert reply.status_code == 401
    assert "LANGCHAIN_FEEDBACK_KEYS" in reply.text
    assert client.post("/login", data={"name": "Ann"}).status_code == 403


def test_a_name_that_another_site_sends_is_refused(memory):
    client = client_of(create_app(memory))
    for headers in ({"origin": "http://evil.test"}, {"sec-fetch-site": "cross-site"}):
        assert client.post("/login", data={"name": "x"}, headers=headers).status_code == 403


@pytest.mark.parametrize(("scopes", "status"), [(["reviewer"], 200), (["other"], 403)])
def test_a_user_of_the_host_needs_the_permission(memory, scopes, status):
    inner = create_app(memory)

    async def host(scope, receive, send):
        if scope["type"] == "http":
            scope |= {"user": SimpleUser("ann"), "auth": AuthCredentials(scopes)}
        await inner(scope, receive, send)

    app = Starlette(routes=[Mount("/host", host)])
    reply = client_of(app).get("/host/queue")
    assert reply.status_code == status
    assert ("ann" in reply.text) == (status == 200)


def test_a_form_is_good_for_its_own_session_only():
    auth, other = Auth(TOKENS), Auth(FeedbackTokens(["another-k3y-made-of-many-different-ones!"]))
    token = auth.csrf("session 1")
    assert auth.is_csrf("session 1", token)
    assert not auth.is_csrf("session 2", token)
    assert not other.is_csrf("session 1", token)
    assert not auth.is_csrf("Ann", auth.invite("Ann"))
