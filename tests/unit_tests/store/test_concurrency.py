"""Several processes on one database: nothing is lost, nobody fails."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from langchain_core.documents import Document
from sqlalchemy import func, select

from langchain_feedback.store import schema
from langchain_feedback.store.feedback_store import FeedbackStore

CHUNK = Document("A refund takes 14 days.", id="refund")
QUESTIONS = 20

WRITER = """
import json, sys
from langchain_feedback.store.feedback_store import FeedbackStore
url, name, number, log = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
store = FeedbackStore(url)
with open(log, "a", buffering=1) as acknowledged:
    for n in range(number):
        event = store.rate(f"t{n % 20}", 5 if n % 3 else 1, target="refund", actor=f"{name}-{n}")
        acknowledged.write(event + "\\n")
"""

READER = """
import sys
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_feedback import FeedbackRetriever
from langchain_feedback.store.feedback_store import FeedbackStore
chunks = [Document("A refund takes 14 days.", id="refund"), Document("Keys rotate.", id="keys")]
store = FeedbackStore(sys.argv[1], timeout_s=60)
retriever = FeedbackRetriever(base_retriever=RunnableLambda(lambda q: chunks), store=store)
sys.stdout.write("ready\\n"); sys.stdout.flush()
n = 0
while sys.stdin.readline() != "":
    assert len(retriever.invoke(f"Question {n % 20}?")) == 2
    n += 1
    sys.stdout.write("more\\n"); sys.stdout.flush()
"""


def filled(url: str) -> None:
    with FeedbackStore(url) as store:
        for number in range(QUESTIONS):
            store.record_trace(f"t{number}", f"Question {number}?", [CHUNK])


def writer(url: str, name: str, number: int, log: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, url, name, str(number), str(log)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def evidence(store):
    with store._reading() as connection:
        return sorted(tuple(row) for row in connection.execute(select(schema.evidence)))


def test_a16_four_processes_rate_500_times_while_a_fifth_retrieves(url, tmp_path):
    filled(url)
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert reader.stdout.readline() == "ready\n", reader.stderr.read()
    writers = [writer(url, f"w{n}", 500, tmp_path / f"{n}.log") for n in range(4)]
    retrieved = 0
    while any(process.poll() is None for process in writers):
        reader.stdin.write("next\n")
        reader.stdin.flush()
        assert reader.stdout.readline() == "more\n", reader.stderr.read()
        retrieved += 1
    for process in writers:
        assert process.wait() == 0, process.stderr.read()
    _, errors = reader.communicate(timeout=30)
    assert reader.returncode == 0, errors
    assert "does without the store" not in errors
    assert retrieved > 10
    with FeedbackStore(url) as store:
        with store._reading() as connection:
            count = connection.execute(select(func.count()).select_from(schema.signals)).scalar()
            traced = connection.execute(select(func.count()).select_from(schema.traces)).scalar()
        assert count == 2_000
        assert traced == QUESTIONS + retrieved
        cells = [store.evidence_for(f"Question {n}?").cells for n in range(QUESTIONS)]
        assert sum(round(c.positive + c.negative, 1) for [c] in cells) == 2_000
        before = evidence(store)
        store.rebuild_evidence()
        assert evidence(store) == before


@pytest.mark.parametrize("seed", range(3))
def test_a_writer_killed_at_random_loses_no_acknowledged_rating(url, tmp_path, seed):
    filled(url)
    chance = random.Random(seed)
    for round_ in range(3):
        log = tmp_path / f"{round_}.log"
        log.touch()
        process = writer(url, f"w{round_}", 100_000, log)
        while log.stat().st_size == 0 and process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.01, 0.3))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    acknowledged = {
        line for n in range(3) for line in (tmp_path / f"{n}.log").read_text().splitlines()
    }
    assert acknowledged
    with FeedbackStore(url) as store:
        with store._reading() as connection:
            kept = set(connection.execute(select(schema.signals.c.event_id)).scalars())
        assert not {event for event in acknowledged if len(event) == 36} - kept
        assert len(kept) <= len(acknowledged) + 3
        before = evidence(store)
        store.rebuild_evidence()
        assert evidence(store) == before


def test_a_forked_process_opens_connections_of_its_own(tmp_path):
    program = """
import json, os, sys
from langchain_core.documents import Document
from langchain_feedback.store.feedback_store import FeedbackStore
store = FeedbackStore(sys.argv[1])
store.record_trace("t1", "refund?", [Document("14 days", id="refund")])
child = os.fork()
for n in range(50):
    store.rate("t1", 5, target="refund", actor=f"{child == 0}-{n}")
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(json.dumps(round(store.evidence_for("refund?").cells[0].positive)))
"""
    url = f"sqlite:///{tmp_path / 'feedback.db'}"
    done = subprocess.run(
        [sys.executable, "-c", program, url], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "") or json.loads(done.stdout) == 100
    assert json.loads(done.stdout) == 100
