"""The tables of learning: rankers, what they are tried on, experiments, and runs of the loop.

Rankers and activations are only ever added. Cases hold their pool without foreign keys to
traces: retention removes those first.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from langchain_feedback.store.columns import SERIAL, instant, metadata

__all__ = [
    "eval_cases",
    "eval_runs",
    "eval_scores",
    "experiments",
    "loop_runs",
    "ranker_activations",
    "rankers",
]

rankers = Table(
    "lcf_rankers",
    metadata,
    Column("ranker_id", String, primary_key=True, doc="digest of what it was made of: made once"),
    Column("namespace", String, nullable=False),
    Column("kind", String, nullable=False, doc="which loader reads the artifact"),
    Column("artifact", Text, nullable=False, doc="JSON; nothing in it runs"),
    Column("sha256", String, nullable=False, doc="of the artifact"),
    Column("labels", String, nullable=False, doc="digest of what it learned from"),
    Column("taught", Text, nullable=False, doc="JSON: the keys of the questions it learned from"),
    Column("groups", Integer, nullable=False, doc="how many reviewed questions taught it"),
    instant("trained_at", nullable=False),
    Index("lcf_rankers_trained", "namespace", "trained_at"),
)

ranker_activations = Table(
    "lcf_ranker_activations",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=True),
    Column("namespace", String, nullable=False),
    Column("role", String, nullable=False, doc="`active` or `shadow`; the newest row counts"),
    Column("ranker_id", ForeignKey(rankers.c.ranker_id), doc="null: the base's own order"),
    Column("action", String, nullable=False, doc="`promote`, `rollback` or `shadow`"),
    Column("actor", String),
    Column("reason", Text, nullable=False, doc="JSON: the figures that it rests on"),
    instant("at", nullable=False),
    Index("lcf_ranker_activations_newest", "namespace", "role", "seq"),
    sqlite_autoincrement=True,
)

eval_cases = Table(
    "lcf_eval_cases",
    metadata,
    Column("case_id", String, primary_key=True, doc="digest of the question: frozen once"),
    Column("namespace", String, nullable=False),
    Column("version", Integer, nullable=False, doc="of the set that it came in with"),
    Column("question_id", BigInteger, doc="no foreign key: the case outlives its traces"),
    Column("question", Text, nullable=False),
    Column("relevant", Text, nullable=False, doc="JSON: the right chunks, and their hashes"),
    Column("pool", Text, nullable=False, doc="JSON: the candidates in the base's order"),
    Column("origin", String, nullable=False, doc="`reviewed`, `sampled` or `imported`"),
    Column("stratum", String, nullable=False, doc="`failing`, `ordinary` or one's own"),
    Column("item_id", String, doc="the review item whose verdict it is"),
    Column("trace_id", String),
    instant("frozen_at", nullable=False),
    instant("retired_at", doc="its verdict was taken back, or its person forgotten"),
    Index("lcf_eval_cases_version", "namespace", "version"),
)

eval_runs = Table(
    "lcf_eval_runs",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("namespace", String, nullable=False),
    Column("version", Integer, nullable=False, doc="of the cases"),
    Column("ranker_id", String, doc="null: the base's own order"),
    Column("baseline_id", String, doc="null: the base's own order"),
    Column("verdict", String, nullable=False, doc="`promote`, `reject` or `advice`"),
    Column("report", Text, nullable=False, doc="JSON"),
    instant("at", nullable=False),
    Index("lcf_eval_runs_at", "namespace", "at"),
)

eval_scores = Table(
    "lcf_eval_scores",
    metadata,
    Column("run_id", ForeignKey(eval_runs.c.run_id, ondelete="CASCADE"), primary_key=True),
    Column("case_id", String, primary_key=True),
    Column("metric", String, primary_key=True),
    Column("value", Float, nullable=False),
    Column("baseline", Float, nullable=False),
)

experiments = Table(
    "lcf_experiments",
    metadata,
    Column("experiment_id", String, primary_key=True),
    Column("namespace", String, nullable=False),
    Column("name", String, nullable=False),
    Column("kind", String, nullable=False, doc="`interleave` or `ab`"),
    Column("settings", Text, nullable=False, doc="JSON: credit, effect, power, alpha"),
    Column("horizon", Integer, nullable=False, doc="questions to wait for; one look, at the end"),
    Column("peeks", Integer, nullable=False, doc="looks before the end"),
    Column("result", Text, doc="JSON: as read at the end"),
    instant("started_at", nullable=False),
    instant("ended_at"),
    UniqueConstraint("namespace", "name", name="lcf_experiments_name"),
)

loop_runs = Table(
    "lcf_loop_runs",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("namespace", String, nullable=False),
    Column("state", String, nullable=False, doc="`running`, `done` or `failed`"),
    Column("holder", String, nullable=False, doc="which process has the lease"),
    instant("lease_until", nullable=False),
    Column("step", String, nullable=False, doc="the last step that is done; empty before one"),
    Column("report", Text, nullable=False, doc="JSON: what each step did"),
    Column("promotes", Boolean, nullable=False, doc="whether it may promote"),
    instant("started_at", nullable=False),
    instant("finished_at"),
    Index("lcf_loop_runs_newest", "namespace", "started_at"),
)
