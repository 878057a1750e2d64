"""Rankers, evaluations, runs and reviewed items as rows, for tests of what is told of them."""

import json
from datetime import UTC, datetime, timedelta

from sqlalchemy import insert

from langchain_feedback.store.eval_runs import EvalRun, add_run
from langchain_feedback.store.learning_schema import eval_cases, loop_runs
from langchain_feedback.store.loop_schema import review_events, review_items
from langchain_feedback.store.rankers import RankerRecord, activate, add_ranker, digest_of
from langchain_feedback.store.transactions import writing

__all__ = ["DAY", "NOW", "frozen", "made_active", "queued", "ran", "trained", "tried"]

NOW = datetime(2026, 3, 30, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def trained(store, ranker_id, *, at=NOW, groups=40):
    """A ranker that nobody can load: what is told of it needs no artifact."""
    artifact = json.dumps({"made_for": "a test", "id": ranker_id})
    with writing(store) as (connection, _):
        record = RankerRecord(
            ranker_id, "linear", artifact, digest_of(artifact), "labels", (), groups, at
        )
        assert add_ranker(connection, store.namespace, record)
    return ranker_id


def tried(store, ranker_id, verdict, *, at=NOW, baseline=None, version=1, **figures):
    """An evaluation with these figures, as `loop.evaluation` stores them."""
    report = {
        "n": 120, "score": 0.6, "baseline_score": 0.55, "gain": 0.05, "p": 0.01, "reasons": [],
        "strata": [], "weights": {}, "metrics": {}, "worst_case": None, "worst_drop": 0.0,
        "set_aside": [], "known": [], "k": 10,
    } | figures  # fmt: skip
    run_id = f"{store.namespace}-{ranker_id}-{at.isoformat()}"
    with writing(store) as (connection, _):
        run = EvalRun(run_id, version, ranker_id, baseline, verdict, report, at)
        assert add_run(connection, store.namespace, run, [])
    return run_id


def made_active(store, ranker_id, *, by=None, action="promote", at=NOW, role="active", **reason):
    """Make a ranker active; `by` is the evaluation that it is promoted by."""
    reason |= {} if by is None else {"run_id": by}
    with writing(store) as (connection, _):
        activate(
            connection, store.namespace, ranker_id, action=action, at=at, role=role, reason=reason
        )


def ran(store, *, at=NOW, state="done", step="digest", lease=timedelta(), asked=()):
    with writing(store) as (connection, _):
        connection.execute(insert(loop_runs).values(
            run_id=f"run-{at.isoformat()}", namespace=store.namespace, state=state, holder="h",
            lease_until=at + lease, step=step, promotes=False, started_at=at,
            report=json.dumps({"asked": list(asked), "steps": []}),
            finished_at=None if state == "running" else at,
        ))  # fmt: skip


def frozen(store, count, *, version=1, retired=None):
    rows = [
        {
            "case_id": f"case-{number}", "namespace": store.namespace, "version": version,
            "question": f"Question {number}?", "relevant": "[]", "pool": "[]",
            "origin": "reviewed", "stratum": "ordinary", "frozen_at": NOW, "retired_at": retired,
        }
        for number in range(count)
    ]  # fmt: skip
    with writing(store) as (connection, _):
        connection.execute(insert(eval_cases), rows)


def queued(store, name, *, at, decided=None, expired=None, right=(), **fields):
    """An item of the queue that came, and was decided or expired, at these times."""
    state = "decided" if decided else "expired" if expired else "open"
    item_id = f"item-{store.namespace}-{name}"
    snapshot = {"question": f"Question {name}?"} | fields.pop("snapshot", {})
    found_class = fields.pop("found_class", None)
    verdict = {"verdict": "confirm", "reviewer": "ann"} | fields
    with writing(store) as (connection, _):
        connection.execute(insert(review_items).values(
            item_id=item_id, namespace=store.namespace, kind="answer", priority=1.0,
            snapshot=json.dumps(snapshot), state=state, reviews_required=1, created_at=at,
            expires_at=expired or at + 28 * DAY, decided_at=decided, failure_class=found_class,
        ))  # fmt: skip
        if decided:
            connection.execute(insert(review_events).values(
                namespace=store.namespace, item_id=item_id, action="decide", seconds=30.0,
                right_chunks=json.dumps(list(right)), at=decided, **verdict,
            ))  # fmt: skip
    return item_id
