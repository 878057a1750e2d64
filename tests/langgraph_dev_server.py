"""The real `langgraph dev` server on a free loopback port, for tests; POSIX only.

The server runs in a temporary folder of symbolic links to what stands beside `config`, so the
paths in the configuration work as they are, and `.langgraph_api` is not left in the checkout.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# `.env` holds a developer's keys, and the server would let it override `env`.
NOT_LINKED = {".env", ".git", ".langgraph_api", ".venv"}
FOREIGN = ("LANGSMITH_", "LANGCHAIN_", "LANGGRAPH_", "LSD_", "OTEL_", "OPENAI_")
QUIET = {
    "LANGSMITH_TRACING": "false",  # no traces
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",  # no telemetry of the command
    "LANGGRAPH_NO_VERSION_CHECK": "true",  # no question to PyPI
    "BG_JOB_SHUTDOWN_GRACE_PERIOD_SECS": "0",  # else a running job holds the stop for 3 minutes
    "PYTHONDONTWRITEBYTECODE": "1",
}


@contextlib.contextmanager
def langgraph_dev(
    config: Path,
    env: Mapping[str, str] | None = None,
    *,
    arguments: tuple[str, ...] = (),
    start_seconds: float = 60,
) -> Iterator[str]:
    """Yield the URL of a ready server; an error inside the block gets its log as a note."""
    config = config.resolve()
    with tempfile.TemporaryDirectory(prefix="langgraph-dev-") as name:
        folder, log = Path(name, "project"), Path(name, "server.log")
        folder.mkdir()
        for entry in config.parent.iterdir():
            if entry.name not in NOT_LINKED:
                (folder / entry.name).symlink_to(entry)
        command = [_executable(), "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1"]
        command += ["--port", str(_free_port()), "--config", config.name]
        command += ["--n-jobs-per-worker", "10", *arguments]  # without it, one run at a time
        clean = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**clean, **QUIET, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a process group, to stop it with its children
            )
        try:
            url = _wait_until_ready(process, log, start_seconds)
            try:
                yield url
            except Exception as error:
                error.add_note(f"The log of `langgraph dev`:\n{_read(log)}")
                raise
        finally:
            _stop(process)


def _executable() -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = shutil.which("langgraph", path=path)
    if not found:
        msg = "No `langgraph` command: install langgraph-cli[inmem] (dependency group `test`)."
        raise RuntimeError(msg)
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    why = f"was not ready after {seconds:g} s"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            why = f"ended with {process.returncode}"
            break
        # The log tells the port: the server takes another one if ours is gone by now.
        url = re.search(r"http://127\.0\.0\.1:\d+", _read(log))
        with contextlib.suppress(OSError):
            if url and opener.open(f"{url[0]}/ok", timeout=2).status == 200:
                return url[0]
        time.sleep(0.05)
    raise RuntimeError(f"`langgraph dev` {why}. Its log:\n{_read(log)}")  # noqa: EM102, TRY003


def _read(log: Path) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", log.read_text("utf-8", errors="replace"))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to end, then end what is left of its process group."""
    for stop in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, stop)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
