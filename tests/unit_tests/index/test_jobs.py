"""Jobs on a corpus: shards, leases, processes, and a night's work."""

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from sqlalchemy import func, select, update

from langchain_feedback.index import jobs
from langchain_feedback.index.catalog import ChunkCatalog
from langchain_feedback.index.gate import QualityGate
from langchain_feedback.index.jobs import (
    CorpusScores,
    JobBusyError,
    JobLease,
    Shard,
    anightly,
    ascore_corpus,
    catalog_documents,
    nightly,
    score_corpus,
)
from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.retirement import Retirement
from langchain_feedback.index.writer import IndexWriter
from langchain_feedback.store.care_schema import care_runs, chunk_quality, job_leases
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.index.gate_kit import good, junk, set_status

CORPUS = [*good(30), *junk(20)]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    url = f"sqlite:///{tmp_path / 'feedback.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    with FeedbackStore(url) as opened:
        yield opened


@pytest.fixture
def light(tmp_path):
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}") as opened:
        yield opened


def kept(store):
    """Every row of quality but its time."""
    columns = [column for column in chunk_quality.c if column.name != "scored_at"]
    with reading(store) as connection:
        return sorted(map(str, connection.execute(select(*columns))))


def gated(store):
    with reading(store) as connection:
        rows = connection.execute(select(chunk_quality.c.content_hash, chunk_quality.c.gated))
        return dict(rows.all())


# -- shards


@given(st.text(), st.integers(1, 50))
def test_each_source_is_in_one_shard(source, of):
    assert [Shard(number, of).holds(source) for number in range(1, of + 1)].count(True) == 1


def test_shards_are_about_equal_and_the_same_everywhere():
    sizes = [sum(Shard(n, 4).holds(f"{at}.md") for at in range(2_000)) for n in (1, 2, 3, 4)]
    assert sum(sizes) == 2_000
    assert min(sizes) > 400
    # By SHA-256, and not by Python's own hash, which differs from process to process.
    assert [Shard(n, 4).holds("faq.md") for n in (1, 2, 3, 4)].index(True) == 0


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/2", "1/2/3", "-1/2", "1/0"])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(ValueError, match="i/n"):
        Shard.parse(text)


# -- scoring


def test_shards_together_are_the_whole(store):
    parts = [score_corpus(store, CORPUS, shard=Shard(number, 3)) for number in (1, 2, 3)]
    assert sum(part.seen for part in parts) == len(CORPUS)
    assert sum(part.gated for part in parts) == 20
    with FeedbackStore("sqlite://") as other:
        score_corpus(other, CORPUS)
        assert gated(other) == gated(store)
        assert len(gated(other)) == len(CORPUS)


def test_chunks_of_a_source_stay_together(light):
    sources = []
    for number in (1, 2, 3):
        shard = Shard(number, 3)
        sources.append({d.metadata["source"] for d in CORPUS if shard.holds(d.metadata["source"])})
        seen = score_corpus(light, CORPUS, shard=shard).seen
        assert seen == sum(d.metadata["source"] in sources[-1] for d in CORPUS)
    assert not (sources[0] & sources[1] | sources[1] & sources[2])


def test_processes_keep_what_one_does(tmp_path):
    found = []
    for workers in (1, 2):
        with FeedbackStore(f"sqlite:///{tmp_path / str(workers)}.db") as store:
            done = score_corpus(store, CORPUS, workers=workers, batch_size=7)
            assert (done.seen, done.scored, done.gated) == (50, 50, 20)
            found.append(kept(store))
    assert found[0] == found[1]


def test_a_run_that_died_is_finished_by_the_next(light):
    def breaks():
        yield from CORPUS[:25]
        msg = "the loader died"
        raise OSError(msg)

    with pytest.raises(OSError, match="died"):
        score_corpus(light, breaks(), batch_size=10)
    assert len(kept(light)) == 20
    done = score_corpus(light, CORPUS, batch_size=10)
    assert (done.seen, done.scored) == (50, 30)
    before = kept(light)
    assert score_corpus(light, CORPUS).scored == 0
    assert kept(light) == before


def test_two_runs_over_the_same_texts_keep_each_once(store):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: score_corpus(store, CORPUS, batch_size=5), range(2)))
    assert len(kept(store)) == len(CORPUS)


def test_documents_are_read_as_they_are_needed(light):
    told, read = [], []

    def loader():
        for document in CORPUS:
            read.append(document)
            yield document

    def progress(count):
        told.append((count, len(read)))

    score_corpus(light, loader(), batch_size=20, progress=progress)
    assert told == [(20, 20), (20, 40), (10, 50)]


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"batch_size": 0}])
def test_numbers_below_one_are_refused(light, wrong):
    with pytest.raises(ValueError, match="above 0"):
        score_corpus(light, CORPUS, **wrong)


def test_the_catalog_is_read_page_by_page_without_what_is_retired(store, monkeypatch):
    monkeypatch.setattr(jobs, "_PAGE", 7)
    named = [d.model_copy(update={"id": f"c{at:02}"}) for at, d in enumerate(CORPUS)]
    ChunkCatalog(store).sync(named, complete=True)
    set_status(store, "retired", "c03", "c49")
    found = {document.id: document.page_content for document in catalog_documents(store)}
    assert found == {d.id: d.page_content for d in named if d.id not in ("c03", "c49")}
    shards = [list(catalog_documents(store, shard=Shard(number, 2))) for number in (1, 2)]
    assert sorted(d.id for shard in shards for d in shard) == sorted(found)
    assert not list(catalog_documents(store.scoped("other")))


# -- leases


def test_one_process_at_a_time_has_a_lease(store):
    first, second = JobLease(store, "score 1/2"), JobLease(store, "score 1/2")
    with first:
        first.check()
        assert not second.claim()
        with pytest.raises(JobBusyError, match="score 1/2"):
            second.check()
        with JobLease(store, "score 2/2"), JobLease(store.scoped("other"), "score 1/2"):
            pass
    assert second.claim()


def test_only_one_of_many_gets_it(store):
    leases = [JobLease(store, "job") for _ in range(12)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(JobLease.claim, leases)).count(True) == 1


def test_the_lease_of_a_process_that_died_ends_by_itself(light):
    dead, heir = JobLease(light, "job", seconds=0.2), JobLease(light, "job", seconds=30)
    assert dead.claim()
    assert not heir.claim()
    time.sleep(0.25)
    assert heir.claim()
    assert not dead.claim()
    dead.release()
    with reading(light) as connection:
        assert connection.execute(select(job_leases.c.holder)).scalar_one() == heir.holder


def test_a_lease_lasts_as_long_as_its_block(light):
    with JobLease(light, "job", seconds=0.6) as lease:
        time.sleep(1.0)
        assert not JobLease(light, "job").claim()
        lease.check()


def test_who_lost_the_lease_is_told(light):
    with JobLease(light, "job", seconds=30) as lease:
        with writing(light) as (connection, _):
            connection.execute(update(job_leases).values(holder="somebody else"))
        with pytest.raises(JobBusyError):
            lease.check()
        with pytest.raises(JobBusyError):
            lease.check()
    with reading(light) as connection:
        assert connection.execute(select(job_leases.c.holder)).scalar_one() == "somebody else"


@pytest.mark.parametrize("wrong", [("", 30), ("job", 0), ("job", float("nan"))])
def test_a_lease_needs_a_name_and_a_time(light, wrong):
    with pytest.raises(ValueError, match="lease"):
        JobLease(light, wrong[0], seconds=wrong[1])


# -- a night


@dataclass
class Looked:
    exit_code: int = 0

    def __str__(self):
        return "looked"


@dataclass
class FakeFold:
    """Fold-back as `nightly` uses it: its own tests are elsewhere."""

    some: bool = True
    applied: list = field(default_factory=list)

    def plan(self):
        return ["a question"] if self.some else []

    def apply(self, plan):
        self.applied.append(plan)


def runs(store):
    with reading(store) as connection:
        mine = select(care_runs).where(care_runs.c.job == "nightly")
        return [dict(row) for row in connection.execute(mine).mappings()]


def retiring(store):
    index = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    writer = IndexWriter(index, TableLedger(store, "handbook"))
    documents = [
        Document(text, id=text[0], metadata={"source": "a.md"})
        for text in ("Contents", "Refunds take 14 days.")
    ]
    writer.apply(writer.plan(documents))
    ChunkCatalog(store).sync(documents, complete=True)
    return Retirement(store, writer)


def test_a_night_scores_and_only_plans(light):
    retirement = retiring(light)
    fold = FakeFold()
    report = nightly(
        light,
        score=lambda: score_corpus(light, catalog_documents(light)),
        foldback=fold,
        retirement=retirement,
        health=Looked,
    )
    assert [(step.name, step.status) for step in report.steps] == [
        ("score", "done"), ("foldback", "planned"), ("retirement", "planned"), ("health", "done"),
    ]  # fmt: skip
    assert report.exit_code == 1
    assert "1 demote" in report.steps[2].said
    assert fold.applied == []
    assert statuses(light) == {"C": "live", "R": "live"}
    [run] = runs(light)
    assert (run["dry_run"], run["status"]) == (True, "done")
    assert json.loads(run["counts"]) == json.loads(json.dumps(report.as_dict()))


def statuses(store):
    with reading(store) as connection:
        return dict(connection.execute(select(chunks.c.chunk_id, chunks.c.status)).all())


def test_a_night_that_applies_hides_the_junk(light):
    retirement, fold = retiring(light), FakeFold()
    QualityGate(light).score(catalog_documents(light))
    report = nightly(light, foldback=fold, retirement=retirement, apply=True)
    assert [step.status for step in report.steps] == ["done", "done"]
    assert report.exit_code == 0
    assert fold.applied == [["a question"]]
    assert statuses(light) == {"C": "demoted", "R": "live"}
    assert runs(light)[0]["dry_run"] is False


def test_a_step_that_fails_does_not_keep_the_others(light):
    def broken():
        msg = "no disk"
        raise OSError(msg)

    report = nightly(light, score=broken, foldback=FakeFold(some=False), health=lambda: Looked(1))
    assert [step.status for step in report.steps] == ["failed", "done", "findings"]
    assert report.steps[0].said == "OSError: no disk"
    assert report.exit_code == 2
    assert runs(light)[0]["status"] == "failed"


def test_two_nights_do_not_meet(light):
    def inner():
        with pytest.raises(JobBusyError):
            nightly(light, health=Looked)
        return "refused"

    assert nightly(light, score=inner).steps[0].said == "refused"
    assert len(runs(light)) == 1
    assert nightly(light.scoped("other"), health=Looked).exit_code == 0


def test_a_night_that_lost_its_lease_stops(light):
    def taken_over():
        with writing(light) as (connection, _):
            connection.execute(update(job_leases).values(holder="somebody else"))

    looked = []
    with pytest.raises(JobBusyError):
        nightly(light, score=taken_over, health=lambda: looked.append(1))
    assert looked == []
    assert runs(light)[0]["status"] == "failed"
    with reading(light) as connection:
        assert connection.execute(select(func.count()).select_from(job_leases)).scalar() == 1


def test_a_night_that_was_killed_is_called_failed_by_the_next_one(tmp_path):
    url = f"sqlite:///{tmp_path / 'feedback.db'}"
    done = subprocess.run([sys.executable, "-c", KILLED, url], check=False)
    assert done.returncode == -signal.SIGKILL
    with FeedbackStore(url, timeout_s=20) as store:
        with pytest.raises(JobBusyError):
            nightly(store)
        with writing(store) as (connection, _):
            over = {"expires_at": datetime(2026, 1, 1, tzinfo=UTC)}
            connection.execute(update(job_leases).values(over))
        nightly(store, score=lambda: "done")
        with reading(store) as connection:
            rows = select(care_runs.c.status).order_by(care_runs.c.started_at)
            assert list(connection.scalars(rows)) == ["failed", "done"]


KILLED = """
import os, signal, sys
from langchain_feedback import FeedbackStore
from langchain_feedback.index.jobs import nightly
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
nightly(FeedbackStore(sys.argv[1]), score=die)
"""


async def test_the_twins_do_the_same(light):
    documents = [Document("Refunds take 14 days."), Document("Contents")]
    assert await ascore_corpus(light, documents) == CorpusScores(seen=2, scored=2, gated=1)
    report = await anightly(light, score=lambda: "done")
    assert [(step.name, step.status) for step in report.steps] == [("score", "done")]
