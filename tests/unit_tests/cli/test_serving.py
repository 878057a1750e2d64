"""`langchain-feedback serve` as a process of its own."""

import os
import socket
import subprocess
import sys
import time

import httpx
from typer.testing import CliRunner

from langchain_feedback import FeedbackStore
from langchain_feedback.cli.commands import app


def test_other_machines_need_keys_first(tmp_path, monkeypatch):
    monkeypatch.delenv("LANGCHAIN_FEEDBACK_KEYS", raising=False)
    database = str(tmp_path / "feedback.db")
    reply = CliRunner().invoke(app, ["serve", "--host", "0.0.0.0", "--database", database])  # noqa: S104
    assert reply.exit_code == 2
    assert "LANGCHAIN_FEEDBACK_KEYS" in reply.output


def test_it_serves_the_pages_and_says_where(tmp_path):
    database = tmp_path / "feedback.db"
    FeedbackStore(f"sqlite:///{database}").setup()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "from langchain_feedback.cli.main import run; run()", "serve"]
    command += ["--port", str(port), "--database", str(database)]
    env = {k: v for k, v in os.environ.items() if k != "LANGCHAIN_FEEDBACK_KEYS"}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            reply = wait_for(f"http://127.0.0.1:{port}/queue")
        finally:
            process.terminate()
            said = process.stderr.read()
    assert reply.status_code == 401
    assert "Who are you?" in reply.text
    assert f"http://127.0.0.1:{port}/queue" in said.replace("\n", "")


def wait_for(url):
    for _ in range(150):
        try:
            return httpx.get(url, timeout=5)
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(url)
