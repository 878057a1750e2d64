"""The pages, the metrics and the signals endpoint inside the real `langgraph dev` server."""

import json
from pathlib import Path

import httpx
import pytest

from langchain_feedback import FeedbackStore, FeedbackTokens, new_trace_id
from langchain_feedback.demo.handbook import handbook_documents
from tests.langgraph_dev_server import langgraph_dev

ROOT = Path(__file__).parents[2]
SCRAPER = "a token for whoever scrapes"
KEY = "k3y-0f-this-test-made-of-many-different-characters"
AUTH = """
from langgraph_sdk import Auth

auth = Auth()


@auth.authenticate
async def who(headers: dict) -> Auth.types.MinimalUserDict:
    name = (headers.get(b"x-user") or b"").decode()
    if not name:
        raise Auth.exceptions.HTTPException(status_code=401, detail="Who are you?")
    permissions = ["reviewer"] if name == "ann" else []
    return {"identity": name, "permissions": permissions, "is_authenticated": True}
"""

pytest.importorskip("langgraph_api", reason="langgraph-cli[inmem] is not installed")


@pytest.fixture
def trace_id(tmp_path):
    """A trace in the store that the server opens."""
    trace_id = new_trace_id()
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}") as store:
        store.record_trace(trace_id, "How long?", handbook_documents()[:3], actor="eve")
    return trace_id


def config(tmp_path, **http):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "graphs").symlink_to(ROOT / "graphs")
    (folder / "auth.py").write_text(AUTH)
    parts = json.loads((ROOT / "langgraph.json").read_text())
    del parts["env"]
    parts["http"] |= http
    if http:
        parts["auth"] = {"path": "./auth.py:auth"}
    path = folder / "langgraph.json"
    path.write_text(json.dumps(parts))
    return path


def env(tmp_path):
    url = f"sqlite:///{tmp_path / 'feedback.db'}"
    return {
        "LANGCHAIN_FEEDBACK_DATABASE": url,
        "LANGCHAIN_FEEDBACK_KEYS": KEY,
        "LANGCHAIN_FEEDBACK_METRICS_TOKEN": SCRAPER,
    }


def vote(client, trace_id, **options):
    event = {"event_id": "e1", "token": FeedbackTokens([KEY]).issue(trace_id), "signal": "copy"}
    return client.post("/feedback/v1/signals", json={"events": [event]}, **options)


def test_pages_and_signals_beside_the_graphs_with_signed_links_check8(tmp_path, trace_id):
    with (
        langgraph_dev(config(tmp_path), env(tmp_path)) as url,
        httpx.Client(base_url=url, follow_redirects=True, timeout=30) as client,
    ):
        assert client.get("/ok").json()["ok"] is True
        assert client.get("/feedback/queue").status_code == 401
        assert client.get("/feedback/metrics").status_code == 401
        token = FeedbackTokens([KEY]).issue("reviewer:Ann", scope="review")
        page = client.get("/feedback/login", params={"reviewer": "Ann", "token": token})
        assert (page.status_code, page.url.path) == (200, "/feedback/queue")
        assert "Ann" in page.text
        for name in (
            "clusters", "sources", "corrections", "health", "rankers", "metrics",
            "static/style.css", "static/plots.css", "v1/feedback.js",
        ):  # fmt: skip
            assert client.get(f"/feedback/{name}").status_code == 200, name
        reply = vote(client, trace_id)
        assert (reply.status_code, reply.json()["events"][0]["status"]) == (202, "accepted")
        asked = {"assistant_id": "reliable_rag", "input": {"question": "How long is a refund?"}}
        answer = client.post("/runs/wait", json=asked).json()
        event = {"event_id": "e2", "token": answer["feedback_token"], "signal": "thumbs_up"}
        reply = client.post("/feedback/v1/signals", json={"events": [event]})
        assert reply.json()["events"][0]["status"] == "accepted"
    with FeedbackStore(env(tmp_path)["LANGCHAIN_FEEDBACK_DATABASE"]) as store:
        found = [(one.signal, one.trace_id) for one in store.signals_since()]
        assert found == [("copy", trace_id), ("thumbs_up", answer["trace_id"])]


def test_the_servers_own_users_review_where_it_authenticates_check8(tmp_path, trace_id):
    with (
        langgraph_dev(config(tmp_path, enable_custom_route_auth=True), env(tmp_path)) as url,
        httpx.Client(base_url=url, follow_redirects=True, timeout=30) as client,
    ):
        assert client.get("/feedback/queue").status_code in (401, 403)
        assert vote(client, trace_id).status_code in (401, 403)
        assert client.get("/feedback/metrics").status_code in (401, 403)
        token = {"authorization": f"Bearer {SCRAPER}"}
        assert client.get("/feedback/metrics", headers=token).status_code in (401, 403)
        ann = client.get("/feedback/queue", headers={"x-user": "ann"})
        assert ann.status_code == 200
        assert "ann" in ann.text
        assert client.get("/feedback/queue", headers={"x-user": "bob"}).status_code == 403
        assert client.get("/feedback/metrics", headers={"x-user": "bob"}).status_code == 401
        numbers = client.get("/feedback/metrics", headers={"x-user": "ann"}).text
        assert 'langchain_feedback_asks_7d{namespace="default"} 1.0' in numbers
        by_token = client.get("/feedback/metrics", headers=token | {"x-user": "bob"})
        assert by_token.status_code == 200
        assert vote(client, trace_id, headers={"x-user": "bob"}).status_code == 202
