"""Questions of an experiment, without a retriever: what was shown, to whom, and what he opened."""

from datetime import UTC, datetime, timedelta
from functools import cache

from langchain_core.documents import Document
from sqlalchemy import update

from langchain_feedback.ranking.interleave import arm_of
from langchain_feedback.store.records import TracedChunk
from langchain_feedback.store.schema import traces
from langchain_feedback.store.transactions import writing
from langchain_feedback.traces import new_trace_id

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
TEAMS = {"from-a": "a", "from-b": "b", "from-both": "both"}


def shown(
    store, experiment, *, actor=None, opens=(), cited=None, at=NOW, traffic=None, trace_id=None,
    teams=None,
):  # fmt: skip
    """Record a mixed list of three, what somebody opened of it, and what the answer quotes."""
    trace_id = trace_id or new_trace_id()
    documents = [
        TracedChunk(Document(f"Text {one}.", id=one), rank, team=team)
        for rank, (one, team) in enumerate((TEAMS if teams is None else teams).items())
    ]
    store.record_trace(
        trace_id, "How long?", documents, actor=actor, traffic=traffic,
        experiment=experiment.experiment_id,
    )  # fmt: skip
    for one in opens:
        store.signal(trace_id, "source_click", target=one)
    if cited is not None:
        store.update_trace(trace_id, cited=cited, grounded=True, status="answered")
    asked_at(store, trace_id, at)
    return trace_id


def served(store, experiment, number, *, arm, **kwargs):
    """Record a question of the `number`-th person who gets an arm; return person and trace."""
    person = _people(experiment.experiment_id, experiment.settings["share"], arm)[number]
    return person, shown(store, experiment, actor=person, teams={"from-a": None}, **kwargs)


@cache
def _people(experiment_id, share, arm):
    people = (f"{arm}-{at}" for at in range(400))
    return [one for one in people if arm_of(experiment_id, one, share) == arm]


def asked_at(store, trace_id, at):
    with writing(store) as (connection, _):
        this = update(traces).where(traces.c.trace_id == trace_id)
        connection.execute(this.values(created_at=at))
