"""A loopback server that receives signed webhooks, and misbehaves as it is told.

    with WebhookServer("secret", [500, 200]) as server:
        deliver(store, owners_with(server.url), folder=None)
    assert server.bodies == [...]

A plan is a list of what to do with each request, the last of which is repeated: a status; a pair
of a status and headers; or "hang", which answers nothing until the server is closed. A request
whose signature is wrong gets 401, whatever the plan says.
"""

import hmac
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

Step = int | tuple[int, Mapping[str, str]] | Literal["hang"]


@dataclass(frozen=True)
class Received:
    """One request that came, whatever was answered."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    status: int | None
    """None: it hangs."""
    at: float = field(default_factory=time.monotonic)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class WebhookServer:
    """Receives on a free port of 127.0.0.1."""

    def __init__(self, secret: str, plan: Sequence[Step] = (200,), *, delay_s: float = 0) -> None:
        self.secret, self.plan, self.delay_s = secret, list(plan), delay_s
        self.received: list[Received] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        ours = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                ours.answer(self)

            def do_GET(self) -> None:  # who follows a redirect comes so
                ours.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    @property
    def accepted(self) -> list[Received]:
        """What was answered with 2xx."""
        return [one for one in self.received if one.status is not None and one.status < 300]

    def is_signed(self, header: str, body: bytes) -> bool:
        """Check a signature as the documentation tells receivers to."""
        try:
            t, v1 = (part.split("=", 1)[1] for part in header.split(","))
            good = hmac.new(self.secret.encode(), t.encode() + b"." + body, "sha256").hexdigest()
            return hmac.compare_digest(good, v1) and abs(time.time() - int(t)) < 300
        except (ValueError, IndexError):
            return False

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        signed = self.is_signed(request.headers.get("X-Feedback-Signature") or "", body)
        with self._lock:
            step: Step = self.plan[min(len(self.received), len(self.plan) - 1)]
            status = None if step == "hang" else step if isinstance(step, int) else step[0]
            status = status if signed else 401
            self.received.append(Received(request.path, dict(request.headers), body, status))
        if status is None:
            self.closing.wait(30)
            return
        time.sleep(self.delay_s)
        request.send_response(status)
        for name, value in step[1].items() if isinstance(step, tuple) and signed else ():
            request.send_header(name, value)
        request.send_header("Content-Length", "0")
        request.end_headers()
