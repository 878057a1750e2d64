"""The tables of learning, and what a trace keeps of rankers and experiments."""

from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from alembic.operations import Operations

__all__ = ["upgrade"]

_TIME = sa.DateTime(timezone=True)
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade(op: "Operations") -> None:
    """Make the tables and add the columns."""
    op.add_column("lcf_trace_chunks", sa.Column("ranker_rank", sa.Integer(), nullable=True))
    op.add_column("lcf_trace_chunks", sa.Column("shadow_rank", sa.Integer(), nullable=True))
    op.add_column("lcf_trace_chunks", sa.Column("team", sa.String(), nullable=True))
    op.add_column("lcf_traces", sa.Column("ranker_id", sa.String(), nullable=True))
    op.add_column("lcf_traces", sa.Column("shadow_id", sa.String(), nullable=True))
    op.add_column("lcf_traces", sa.Column("experiment", sa.String(), nullable=True))
    op.create_index("lcf_traces_experiment", "lcf_traces", ["namespace", "experiment"])
    _make_rankers(op)
    _make_evaluation(op)
    _make_runs(op)


def _make_rankers(op: "Operations") -> None:
    op.create_table(
        "lcf_rankers",
        sa.Column("ranker_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("artifact", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("labels", sa.String(), nullable=False),
        sa.Column("taught", sa.Text(), nullable=False),
        sa.Column("groups", sa.Integer(), nullable=False),
        sa.Column("trained_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("ranker_id"),
    )
    op.create_index("lcf_rankers_trained", "lcf_rankers", ["namespace", "trained_at"])
    op.create_table(
        "lcf_ranker_activations",
        sa.Column("seq", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("ranker_id", sa.String(), nullable=True),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["ranker_id"], ["lcf_rankers.ranker_id"]),
        sa.PrimaryKeyConstraint("seq"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "lcf_ranker_activations_newest", "lcf_ranker_activations", ["namespace", "role", "seq"]
    )


def _make_evaluation(op: "Operations") -> None:
    op.create_table(
        "lcf_eval_cases",
        sa.Column("case_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("question_id", sa.BigInteger(), nullable=True),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("relevant", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("stratum", sa.String(), nullable=False),
        sa.Column("item_id", sa.String(), nullable=True),
        sa.Column("trace_id", sa.String(), nullable=True),
        sa.Column("frozen_at", _TIME, nullable=False),
        sa.Column("retired_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("case_id"),
    )
    op.create_index("lcf_eval_cases_version", "lcf_eval_cases", ["namespace", "version"])
    op.create_table(
        "lcf_eval_runs",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("ranker_id", sa.String(), nullable=True),
        sa.Column("baseline_id", sa.String(), nullable=True),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_index("lcf_eval_runs_at", "lcf_eval_runs", ["namespace", "at"])
    op.create_table(
        "lcf_eval_scores",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("case_id", sa.String(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("baseline", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["lcf_eval_runs.run_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "case_id", "metric"),
    )


def _make_runs(op: "Operations") -> None:
    op.create_table(
        "lcf_experiments",
        sa.Column("experiment_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("horizon", sa.Integer(), nullable=False),
        sa.Column("peeks", sa.Integer(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("started_at", _TIME, nullable=False),
        sa.Column("ended_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("experiment_id"),
        sa.UniqueConstraint("namespace", "name", name="lcf_experiments_name"),
    )
    op.create_table(
        "lcf_loop_runs",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("lease_until", _TIME, nullable=False),
        sa.Column("step", sa.String(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("promotes", sa.Boolean(), nullable=False),
        sa.Column("started_at", _TIME, nullable=False),
        sa.Column("finished_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_index("lcf_loop_runs_newest", "lcf_loop_runs", ["namespace", "started_at"])
