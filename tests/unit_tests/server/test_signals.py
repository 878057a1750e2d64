"""The signals endpoint over HTTP: what is taken, what is refused, and how it says so."""

import json
import re
import threading
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from langchain_core.documents import Document
from sqlalchemy import select
from starlette.applications import Starlette
from starlette.testclient import TestClient

from langchain_feedback.errors import StoreError
from langchain_feedback.server.signals import mount_signals, signal_routes
from langchain_feedback.store.inbox.limits import Limits
from langchain_feedback.store.schema import signals
from langchain_feedback.store.transactions import reading
from langchain_feedback.tokens import FeedbackTokens
from langchain_feedback.traces import new_trace_id
from tests.unit_tests.store.conftest import store, url

__all__ = ["store", "url"]

CHUNKS = [Document(f"Chunk {n}.", id=f"c{n}") for n in range(3)]
TOKENS = FeedbackTokens(["a secret that only this test knows, 32 bytes"])
SENT = {"content-type": "text/plain;charset=UTF-8"}
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@pytest.fixture
def client(store):
    app = Starlette()
    mount_signals(app, store, TOKENS)
    with TestClient(app) as opened:
        yield opened


@pytest.fixture
def trace_id(store):
    made = new_trace_id()
    store.record_trace(made, "How long?", CHUNKS, actor="ann")
    return made


@pytest.fixture
def token(trace_id):
    return TOKENS.issue(trace_id, actor="ann")


def post(client, *events, **fields):
    return client.post(
        "/feedback/v1/signals", content=json.dumps({"events": events}), headers=SENT, **fields
    )


def event(token, event_id="e1", signal="thumbs_up", **fields):
    return {"event_id": event_id, "token": token, "signal": signal} | fields


def rows(store):
    with reading(store) as connection:
        return connection.execute(select(signals).order_by(signals.c.seq)).all()


# -- what is taken


@pytest.mark.parametrize("kind", ["application/json", "text/plain;charset=UTF-8", "text/plain"])
def test_a_batch_is_answered_event_by_event(client, store, trace_id, token, kind):
    late = TOKENS.issue(new_trace_id())
    batch = [
        event(
            token, "e1", "source_click", target="c1", rank=1, client_time="2026-01-01T00:00:00Z"
        ),
        event(token, "e1", "source_click", target="c1", rank=1),
        event(late, "e2", "rating", rating=5),
        event(token, "e3", "source_click", target="c9"),
        event(token, "e4", "grounded"),
        event(token, "e5", "dwell", ms=1200),
        event(token, "e6", "rating", value=2, comment="Old."),
        event(None, "e7"),
        7,
    ]
    answer = client.post(
        "/feedback/v1/signals",
        content=json.dumps({"events": batch}),
        headers={"content-type": kind},
    )
    assert answer.status_code == 202
    told = answer.json()["events"]
    assert [one["status"] for one in told] == [
        "accepted", "duplicate", "pending", "rejected", "rejected", "accepted", "accepted",
        "rejected", "rejected",
    ]  # fmt: skip
    assert [one["event_id"] for one in told] == [
        "e1",
        "e1",
        "e2",
        "e3",
        "e4",
        "e5",
        "e6",
        "e7",
        None,
    ]
    assert [one.get("reason") for one in told][-2:] == [
        "token is missing",
        "an event is an object",
    ]
    assert all(("reason" in one) == (one["status"] == "rejected") for one in told)
    kept = {row.event_id: row for row in rows(store) if not row.event_id.startswith("skipped:")}
    assert set(kept) == {"e1", "e2", "e5", "e6"}
    assert kept["e1"].client_time == datetime(2026, 1, 1, tzinfo=UTC)
    assert (kept["e5"].value, kept["e6"].rating, kept["e6"].comment) == (1200, 2, "Old.")
    assert {row.trace_id for row in rows(store)} == {trace_id, kept["e2"].trace_id}
    assert [row.target for row in rows(store) if row.signal == "source_skipped"] == ["c0"]


def test_who_asked_counts_once_and_somebody_else_is_somebody_else(client, store, trace_id, token):
    store.rate(trace_id, 1)
    post(client, event(token, "e1"))
    post(client, event(TOKENS.issue(trace_id, actor="ben"), "e2"))
    actors = [row.actor for row in rows(store)]
    assert actors[:2] == [None, None]
    assert re.fullmatch("token:[0-9a-f]{16}", actors[2])
    [good] = store.evidence_for("How long?").questions
    assert (good.positive, good.negative) == (pytest.approx(2), 0)


def test_a_session_without_a_name_counts_once_too(client, store):
    made = new_trace_id()
    store.record_trace(made, "How long?", CHUNKS, session_id="chat-1")
    store.rate(made, 1)
    post(client, event(TOKENS.issue(made, actor="session:chat-1"), "e1"))
    post(client, event(TOKENS.issue(made), "e2", "copy"))
    assert [row.actor for row in rows(store)] == [None] * 3
    [good] = store.evidence_for("How long?").questions
    assert (good.positive, good.negative) == (pytest.approx(1), 0)


def test_held_signals_look_accepted(store, client, trace_id):
    for number in range(12):
        store.record_trace(f"t{number}", f"What {number}?", CHUNKS, actor=f"p{number}")
        store.rate(f"t{number}", 4)
    told = []
    for number in range(7):
        other = new_trace_id()
        store.record_trace(other, "How long?", CHUNKS, actor="eve")
        told += post(client, event(TOKENS.issue(other, actor="eve"), f"e{number}")).json()[
            "events"
        ]
    assert {one["status"] for one in told} == {"accepted"}
    assert [burst.events for burst in store.bursts()] == [7]


# -- tokens


def test_an_expired_an_altered_and_another_answers_token_are_refused_check9(
    client, store, trace_id, token
):
    other = new_trace_id()
    store.record_trace(other, "How much?", [Document("Else.", id="d0")])
    expired = TOKENS.issue(trace_id, now=datetime.now(UTC) - timedelta(days=31))
    strange = FeedbackTokens(["another secret, of somebody else, 32 bytes"]).issue(trace_id)
    review = TOKENS.issue(trace_id, scope="review")
    answer = post(
        client,
        event(expired, "e1"),
        event(strange, "e2"),
        event(review, "e3"),
        event(token, "e4", trace_id=other),
        event(token, "e5", "source_click", target="d0"),
        event(token + "A", "e6"),
        event("", "e7"),
        event(["x"], "e8"),
    )
    assert answer.status_code == 202
    assert {one["status"] for one in answer.json()["events"]} == {"rejected"}
    assert answer.json()["events"][3]["reason"] == "this token is of another answer"
    assert rows(store) == []


def test_every_change_of_one_character_of_a_token_is_refused_check9(client, store, token):
    changed = [
        token[:at] + letter + token[at + 1 :]
        for at, now in enumerate(token)
        for letter in ALPHABET
        if letter != now
    ]
    assert len(changed) == 62 * 63
    for start in range(0, len(changed), 50):
        batch = [event(one, f"e{n}") for n, one in enumerate(changed[start : start + 50])]
        told = post(client, *batch).json()["events"]
        assert {one["status"] for one in told} == {"rejected"}
    assert rows(store) == []
    assert post(client, event(token)).json()["events"][0]["status"] == "accepted"


# -- limits


def test_too_many_are_told_when_to_come_back_and_nothing_is_kept(client, store, token):
    batch = [event(token, f"e{n}", "copy") for n in range(20)]
    assert post(client, *batch).status_code == 202
    answer = post(client, event(token, "more"), event(token, "e1", "copy"))
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) == answer.json()["retry_after_s"] > 0
    assert (
        answer.json()["error"] == "At most 20 events of one token; nothing of this batch was kept."
    )
    assert len(rows(store)) == 20


def test_the_address_is_counted_over_all_tokens(store):
    app = Starlette(routes=signal_routes(store, TOKENS, Limits(per_address=3)))
    client = TestClient(app, client=("192.0.2.9", 1))
    sent = [event(TOKENS.issue(new_trace_id()), f"e{n}") for n in range(4)]
    statuses = [
        client.post("/v1/signals", content=json.dumps({"events": [one]}), headers=SENT).status_code
        for one in sent
    ]
    assert statuses == [202, 202, 202, 429]


# -- bad requests


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", SENT, 400), (b"{", SENT, 400), (b"[]", SENT, 400), (b"{}", SENT, 400),
        (b'{"events": 1}', SENT, 400), (b'{"events": []}', SENT, 400),
        (b'{"events": [NaN]}', SENT, 400), (b"[" * 30_000, SENT, 400), (b"\xff", SENT, 400),
        (b"9" * 6_000, SENT, 400), (json.dumps({"events": [{}] * 51}).encode(), SENT, 400),
        (b"{}", {}, 415), (b"{}", {"content-type": "application/xml"}, 415),
        (b"{}", {"content-type": "multipart/form-data; boundary=x"}, 415),
        (b" " * 65_537, SENT, 413),
    ],
)  # fmt: skip
def test_a_request_that_is_none_is_told_in_plain_json(client, body, headers, status):
    answer = client.post("/feedback/v1/signals", content=body, headers=headers)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}


def test_a_body_that_says_nothing_of_its_size_is_not_read_to_its_end(client):
    sent = []

    def endless():
        for _ in range(1_000):
            sent.append(1)
            yield b"x" * 10_000

    answer = client.post("/feedback/v1/signals", content=endless(), headers=SENT)
    assert answer.status_code == 413


def test_a_full_body_is_taken(client, token):
    body = json.dumps({"events": [event(token, comment="x" * 5_000)]}).encode().ljust(65_536)
    answer = client.post("/feedback/v1/signals", content=body, headers=SENT)
    assert answer.json()["events"][0]["status"] == "accepted"


def test_a_store_that_is_away_is_told_without_its_secrets(store, client, token, monkeypatch):
    def away(*args, **kwargs):
        msg = "postgresql://user:secret@host is away"
        raise StoreError(msg)

    monkeypatch.setattr(type(store), "receive", away)
    answer = post(client, event(token))
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "30"
    assert "secret" not in answer.text


async def test_the_event_loop_stays_free_while_the_database_is_busy(store, token):
    """As servers with a check for blocking calls demand."""
    app = Starlette(routes=signal_routes(store, TOKENS))
    threads = set()
    receive = store.receive

    def watched(*args, **kwargs):
        threads.add(threading.current_thread())
        return receive(*args, **kwargs)

    store.receive = watched
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
        body = json.dumps({"events": [event(token)]})
        answer = await client.post("/v1/signals", content=body, headers=SENT)
    del store.receive
    assert answer.status_code == 202
    assert threads
    assert threading.current_thread() not in threads


# -- other origins


def test_any_page_may_send_and_no_cookie_plays_a_part(client, token):
    answer = post(client, event(token))
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers
    asked = client.options("/feedback/v1/signals", headers={"origin": "https://a.example"})
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-headers"] == "content-type"


def test_only_named_origins_may_send_where_some_are_named(store, token):
    routes = signal_routes(store, TOKENS, allow_origins=["https://a.example"])
    client = TestClient(Starlette(routes=routes), base_url="http://host")
    body = json.dumps({"events": [event(token)]})

    def sent(**headers):
        return client.post("/v1/signals", content=body, headers=SENT | headers)

    assert (
        sent(origin="https://a.example").headers["access-control-allow-origin"]
        == "https://a.example"
    )
    assert sent(origin="https://b.example").status_code == 403
    assert "access-control-allow-origin" not in sent(origin="https://b.example").headers
    assert sent(origin="http://host").status_code == 202
    assert sent().headers["vary"] == "origin"


# -- e-mails


def hidden(page):
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))


def test_a_link_in_an_email_votes_only_when_its_button_is_pressed(client, store, trace_id, token):
    link = f"/feedback/v1/rate?token={token}&signal=rating&rating=2"
    assert client.head(link).status_code == 200
    shown = client.get(link)
    assert (shown.status_code, rows(store)) == (200, [])
    assert "Send the rating 2 of 5" in shown.text
    policy = shown.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script" not in shown.text
    assert shown.headers["referrer-policy"] == "no-referrer"
    form = hidden(shown.text) | {"comment": " Too <short>. "}
    for _ in range(2):
        thanks = client.post("/feedback/v1/rate", data=form)
        assert (thanks.status_code, "Thank you" in thanks.text) == (200, True)
    [row] = rows(store)
    assert (row.trace_id, row.rating, row.comment, row.actor) == (
        trace_id,
        2,
        "Too <short>.",
        None,
    )
    # Opened again it is another submission.
    client.post("/feedback/v1/rate", data=hidden(client.get(link).text))
    assert len(rows(store)) == 2


def test_a_correction_by_email_needs_its_text(client, store, token):
    shown = client.get(f"/feedback/v1/rate?token={token}&signal=correction").text
    assert "required" in shown
    assert client.post("/feedback/v1/rate", data=hidden(shown)).status_code == 400
    client.post("/feedback/v1/rate", data=hidden(shown) | {"comment": "30 days"})
    assert [(row.signal, row.correction, row.comment) for row in rows(store)] == [
        ("correction", "30 days", None)
    ]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 403), ("token=x&signal=thumbs_up", 403), ("token={}", 400),
        ("token={}&signal=copy", 400), ("token={}&signal=rating&rating=6", 400),
        ("token={}&signal=rating&rating=12", 400), ("token={}&signal=rating", 400),
        ("token=%3Cscript%3E&signal=%3Cscript%3E", 403),
    ],
)  # fmt: skip
def test_a_link_that_is_no_good_says_so(client, store, token, query, status):
    answer = client.get(f"/feedback/v1/rate?{query.format(token)}")
    assert answer.status_code == status
    assert "<form" not in answer.text
    assert "<script" not in answer.text
    assert rows(store) == []


def test_the_form_is_held_to_the_limits_too(client, token):
    for _ in range(20):
        form = hidden(client.get(f"/feedback/v1/rate?token={token}&signal=thumbs_up").text)
        assert client.post("/feedback/v1/rate", data=form).status_code == 200
    form = hidden(client.get(f"/feedback/v1/rate?token={token}&signal=thumbs_up").text)
    answer = client.post("/feedback/v1/rate", data=form)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    assert client.post("/feedback/v1/rate", data=form | {"event_id": "<b>"}).status_code == 400
    assert client.post("/feedback/v1/rate", content=b"{}", headers=SENT).status_code == 415
    long = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/feedback/v1/rate", content=b"x" * 65_537, headers=long).status_code == 413
    assert client.post("/feedback/v1/rate", content=b"\xff=1", headers=long).status_code == 400
    assert client.post("/feedback/v1/rate", content=b"a=1&" * 40, headers=long).status_code == 400


def test_the_snippet_is_served_beside_the_endpoint(client):
    answer = client.get("/feedback/v1/feedback.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "sendBeacon" in answer.text
    assert len(answer.content) < 5_000
