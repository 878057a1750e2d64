"""The tables of index care, and what a snapshot keeps of its place and its standing."""

from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from alembic.operations import Operations

__all__ = ["upgrade"]

_TIME = sa.DateTime(timezone=True)


def upgrade(op: "Operations") -> None:
    """Make the tables and add the columns."""
    op.add_column("lcf_chunks", sa.Column("position", sa.Integer(), nullable=True))
    op.add_column("lcf_chunks", sa.Column("start_index", sa.Integer(), nullable=True))
    op.add_column("lcf_chunks", sa.Column("scope", sa.String(), nullable=True))
    live = sa.Column("status", sa.String(), nullable=False, server_default="live")
    op.add_column("lcf_chunks", live)
    op.add_column("lcf_chunks", sa.Column("first_seen", _TIME, nullable=True))
    op.add_column("lcf_chunks", sa.Column("changed_at", _TIME, nullable=True))
    op.create_index("lcf_chunks_status", "lcf_chunks", ["namespace", "status"])
    _make_quality(op)
    _make_entries(op)
    _make_derived(op)
    _make_versions(op)
    _make_runs(op)


def _make_quality(op: "Operations") -> None:
    op.create_table(
        "lcf_chunk_quality",
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("scoring_version", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("legibility", sa.Float(), nullable=False),
        sa.Column("repetition", sa.Float(), nullable=False),
        sa.Column("navigation", sa.Float(), nullable=False),
        sa.Column("sufficiency", sa.Float(), nullable=False),
        sa.Column("answerability", sa.Float(), nullable=True),
        sa.Column("judge", sa.String(), nullable=True),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.Column("gated", sa.Boolean(), nullable=False),
        sa.Column("scored_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("content_hash", "scoring_version"),
    )
    op.create_table(
        "lcf_quality_overrides",
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("namespace", "content_hash"),
    )


def _make_entries(op: "Operations") -> None:
    op.create_table(
        "lcf_index_entries",
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("index_name", sa.String(), nullable=False),
        sa.Column("chunk_id", sa.String(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("metadata_hash", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("namespace", "index_name", "chunk_id"),
    )
    op.create_index(
        "lcf_index_entries_state", "lcf_index_entries", ["namespace", "index_name", "state"]
    )
    op.create_table(
        "lcf_index_records",
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("index_name", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=True),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("namespace", "index_name", "key"),
    )
    op.create_index(
        "lcf_index_records_group", "lcf_index_records", ["namespace", "index_name", "group_id"]
    )


def _make_derived(op: "Operations") -> None:
    op.create_table(
        "lcf_derived",
        sa.Column("derived_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("question_id", sa.BigInteger(), nullable=True),
        sa.Column("trace_id", sa.String(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("approved_by", sa.String(), nullable=True),
        sa.Column("approved_at", _TIME, nullable=True),
        sa.Column("expires_at", _TIME, nullable=True),
        sa.Column("votes", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("derived_id"),
    )
    op.create_index("lcf_derived_status", "lcf_derived", ["namespace", "status"])
    op.create_index("lcf_derived_question", "lcf_derived", ["question_id"])
    op.create_table(
        "lcf_derived_sources",
        sa.Column("derived_id", sa.String(), nullable=False),
        sa.Column("chunk_id", sa.String(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["derived_id"], ["lcf_derived.derived_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("derived_id", "chunk_id"),
    )
    op.create_index("lcf_derived_sources_chunk", "lcf_derived_sources", ["chunk_id"])


def _make_versions(op: "Operations") -> None:
    op.create_table(
        "lcf_index_versions",
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("locator", sa.Text(), nullable=False),
        sa.Column("embedder", sa.String(), nullable=False),
        sa.Column("dimension", sa.Integer(), nullable=False),
        sa.Column("chunk_count", sa.Integer(), nullable=False),
        sa.Column("checks", sa.Text(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("activated_at", _TIME, nullable=True),
        sa.Column("retired_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("namespace", "version"),
    )
    op.create_index(
        "lcf_index_versions_active",
        "lcf_index_versions",
        ["namespace"],
        unique=True,
        sqlite_where=sa.text("status = 'active'"),
        postgresql_where=sa.text("status = 'active'"),
    )


def _make_runs(op: "Operations") -> None:
    op.create_table(
        "lcf_care_runs",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.Column("plan_digest", sa.String(), nullable=True),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("started_at", _TIME, nullable=False),
        sa.Column("finished_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_index("lcf_care_runs_newest", "lcf_care_runs", ["namespace", "job", "started_at"])
    op.create_table(
        "lcf_care_actions",
        sa.Column("action_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("statistics", sa.Text(), nullable=False),
        sa.Column("actor", sa.String(), nullable=True),
        sa.Column("undone_by", sa.String(), nullable=True),
        sa.Column("at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["lcf_care_runs.run_id"]),
        sa.PrimaryKeyConstraint("action_id"),
    )
    op.create_index("lcf_care_actions_run", "lcf_care_actions", ["run_id"])
    op.create_index("lcf_care_actions_target", "lcf_care_actions", ["target"])
    op.create_table(
        "lcf_job_leases",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
