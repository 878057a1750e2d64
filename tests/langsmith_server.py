"""A loopback server that speaks what LangSmith's client says about runs and feedback.

Only the standard library. It keeps runs and feedback, and records every call::

    with LangSmithServer() as server:
        client = Client(api_url=server.api_url, api_key="test", auto_batch_tracing=False)
        client.create_feedback(...)
        assert server.feedback[...]["score"] == 1

`server.fail` decides over each call: a number is the status of an error, None lets it through.
`server.hold()` keeps every call waiting until the block ends.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROJECT_ID = "11111111-1111-4111-8111-111111111111"


@dataclass(frozen=True)
class Call:
    method: str
    path: str  # without the prefix of the API's version
    params: dict[str, list[str]]
    body: Any

    @property
    def name(self) -> str:
        """Method and path, ids left out."""
        return f"{self.method} {re.sub(r'/[0-9a-f-]{36}', '/ID', self.path)}"


class LangSmithServer:
    """Serves from `__enter__` to `__exit__`, which raises what went wrong in the server."""

    def __init__(self, *, repeats: str = "replace") -> None:
        self.fail: Callable[[Call], int | None] = lambda _: None
        self.repeats = (
            repeats  # what a second POST of one id does: "replace", "ignore", "conflict"
        )
        self.runs: dict[str, dict[str, Any]] = {}
        self.feedback: dict[str, dict[str, Any]] = {}
        self.errors: list[BaseException] = []
        self._calls: list[Call] = []
        self._lock = threading.RLock()
        self._open, self._called = threading.Event(), threading.Event()
        self._open.set()

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self.api_url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._open.set()
        self._server.shutdown()
        self._server.server_close()
        if self.errors and kind is None:
            raise self.errors[0]

    @contextmanager
    def hold(self) -> Iterator[threading.Event]:
        """Keep calls waiting; the event says that one has come."""
        self._called.clear()
        self._open.clear()
        try:
            yield self._called
        finally:
            self._open.set()

    @property
    def calls(self) -> list[Call]:
        """All calls in order of arrival."""
        with self._lock:
            return list(self._calls)

    def names(self) -> list[str]:
        """What was called, but for what a client asks about the server and the project."""
        asides = ("GET /info", "GET /sessions", "POST /runs", "PATCH /runs/ID")
        return [call.name for call in self.calls if call.name not in asides]

    def forget_calls(self) -> None:
        with self._lock:
            self._calls.clear()

    def add_run(self, names: str | None = None, *, below: str | None = None) -> str:
        """Keep a run: what trace its metadata name, and the root that it is a child of."""
        run_id = str(uuid.uuid4())
        metadata = {} if names is None else {"feedback_trace_id": names}
        run = {"id": run_id, "trace_id": below or run_id, "parent_run_id": below}
        with self._lock:
            self.runs[run_id] = run | {"start_time": _now(), "extra": {"metadata": metadata}}
        return run_id

    def add_feedback(self, run_id: str | None, key: str = "user_score", **more: Any) -> str:
        """Keep feedback as an application gives it, or anybody else."""
        feedback_id, now = str(uuid.uuid4()), _now()
        root = self.runs[run_id]["trace_id"] if run_id in self.runs else None
        given = {"id": feedback_id, "run_id": run_id, "trace_id": root, "key": key}
        given |= {"created_at": now, "modified_at": now, "session_id": PROJECT_ID}
        given |= {"feedback_source": {"type": "api", "metadata": {}}}
        self.feedback[feedback_id] = given | more
        return feedback_id

    def answer(self, call: Call) -> tuple[int, Any]:
        with self._lock:
            self._calls.append(call)
        self._called.set()
        self._open.wait(60)
        if status := self.fail(call):
            return status, {"detail": f"status {status}"}
        with self._lock:
            return self._answer(call)

    def _answer(self, call: Call) -> tuple[int, Any]:
        answers: dict[str, Callable[[Call], tuple[int, Any]]] = {
            "GET /info": lambda _: (200, {"version": "0.16.20"}),
            "GET /sessions": _project,
            "POST /runs": self._keep_run,
            "PATCH /runs/ID": self._keep_run,
            "POST /v2/runs/query": self._find_runs,
            "POST /feedback": self._keep_feedback,
            "PATCH /feedback/ID": self._change_feedback,
            "GET /feedback": self._list_feedback,
        }
        if call.name not in answers:
            self.errors.append(AssertionError(f"nobody speaks {call.name}"))
            return 404, {"detail": "Not Found"}
        return answers[call.name](call)

    def _keep_run(self, call: Call) -> tuple[int, Any]:
        run_id = call.body.get("id") or call.path.rpartition("/")[2]
        self.runs.setdefault(run_id, {"id": run_id}).update(call.body)
        return 202, {}

    def _find_runs(self, call: Call) -> tuple[int, Any]:
        query = call.body
        assert query["project_ids"] == [PROJECT_ID]
        since = _time(query["min_start_time"])
        found = [
            run
            for run in self.runs.values()
            if _time(run["start_time"]) >= since
            and query.get("trace_id") in (None, run["trace_id"])
            and _matches(query["filter"], run["extra"]["metadata"])
        ]
        start, size = int(query.get("cursor", 0)), query["page_size"]
        page = [self._shown(run, query["selects"]) for run in found[start : start + size]]
        rest = str(start + size) if len(found) > start + size else None
        return 200, {"items": page, "next_cursor": rest}

    def _shown(self, run: dict[str, Any], selects: list[str]) -> dict[str, Any]:
        above, parent = [], run.get("parent_run_id")
        while parent:
            above.insert(0, parent)
            parent = self.runs[parent].get("parent_run_id")
        everything = run | {"metadata": run["extra"]["metadata"], "parent_run_ids": above}
        return {name.lower(): everything[name.lower()] for name in selects}

    def _keep_feedback(self, call: Call) -> tuple[int, Any]:
        given = call.body
        if given["run_id"] not in self.runs:
            return 404, {"detail": "Run not found"}
        if given["id"] in self.feedback and self.repeats != "replace":
            return (409, {"detail": "Conflict"}) if self.repeats == "conflict" else (200, {})
        root = self.runs[given["run_id"]]["trace_id"]
        empty = dict.fromkeys(("score", "value", "comment", "correction"))
        self.feedback[given["id"]] = empty | {"trace_id": root} | given
        return 202, {}

    def _change_feedback(self, call: Call) -> tuple[int, Any]:
        feedback_id = call.path.rpartition("/")[2]
        if feedback_id not in self.feedback:
            return 404, {"detail": "Resource not found"}
        self.feedback[feedback_id].update(call.body, modified_at=_now())
        return 200, {}

    def _list_feedback(self, call: Call) -> tuple[int, Any]:
        assert call.params["session"] == [PROJECT_ID]
        found = [one for one in self.feedback.values() if one["key"] in call.params["key"]]
        offset, limit = (int(call.params[name][0]) for name in ("offset", "limit"))
        return 200, found[offset : offset + limit]


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True
    owner: LangSmithServer

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without HTTPServer's look-up of the host's full name

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exception()
        if error and not isinstance(error, ConnectionError):  # some tests' clients leave early
            self.owner.errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def _serve(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = re.sub(r"^/api(/v1)?", "", url.path)
        call = Call(self.command, path, parse_qs(url.query), json.loads(body) if body else None)
        if self.headers.get("x-api-key") == "test":
            status, answer = self.server.owner.answer(call)
        else:
            status, answer = 401, {"detail": "Invalid token"}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815


def _project(call: Call) -> tuple[int, Any]:
    project = {"id": PROJECT_ID, "name": call.params["name"][0], "tenant_id": PROJECT_ID}
    return 200, [project | {"start_time": _now(), "reference_dataset_id": None}]


def _matches(filter_: str, metadata: dict[str, Any]) -> bool:
    """Whether a run with these metadata fulfils an expression of LangSmith's query language."""
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|[a-z_]+|[(),]', filter_)

    def take(wanted: str) -> None:
        assert tokens.pop(0) == wanted, filter_

    def expression(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Return those of the pairs that fulfil it: key and value must meet in one of them."""
        operator = tokens.pop(0)
        take("(")
        if operator == "eq":
            field = tokens.pop(0)
            take(",")
            at, value = {"metadata_key": 0, "metadata_value": 1}[field], json.loads(tokens.pop(0))
            found = [pair for pair in pairs if pair[at] == value]
        else:
            assert operator in ("and", "or"), filter_
            found = expression(pairs)
            while tokens[0] == ",":
                take(",")
                more = expression(pairs)
                found = (
                    [pair for pair in found if pair in more] if operator == "and" else found + more
                )
        take(")")
        return found

    found = expression(list(metadata.items()))
    assert not tokens, filter_
    return bool(found)


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
