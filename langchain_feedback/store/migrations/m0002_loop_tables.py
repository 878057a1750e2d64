"""The tables of the loop, and what traces and signals say beside."""

from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from alembic.operations import Operations

__all__ = ["upgrade"]

_TIME = sa.DateTime(timezone=True)
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade(op: "Operations") -> None:
    """Make the tables and add the columns."""
    _add_columns(op)
    _make_tables(op)


def _add_columns(op: "Operations") -> None:
    op.add_column("lcf_signals", sa.Column("value", sa.Float(), nullable=True))
    op.add_column("lcf_signals", sa.Column("state", sa.String(), nullable=True))
    op.add_column("lcf_signals", sa.Column("burst_id", sa.String(), nullable=True))
    op.create_index("lcf_signals_burst", "lcf_signals", ["burst_id"])
    op.add_column("lcf_traces", sa.Column("reason", sa.String(), nullable=True))
    op.add_column("lcf_traces", sa.Column("traffic", sa.String(), nullable=True))
    op.create_index("lcf_traces_session", "lcf_traces", ["namespace", "session_id"])
    # They replace each other now: one person reformulates one question in one way.
    op.execute(
        "UPDATE lcf_signals SET family = 'reformulation' "
        "WHERE signal IN ('regenerate', 'rephrase')"
    )


def _make_tables(op: "Operations") -> None:
    op.create_table(
        "lcf_counters",
        sa.Column("bucket", sa.String(), nullable=False),
        sa.Column("hour", _TIME, nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("bucket", "hour"),
    )
    op.create_index("lcf_counters_hour", "lcf_counters", ["hour"])
    op.create_table(
        "lcf_deliveries",
        sa.Column("delivery_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("next_at", _TIME, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("sent_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("delivery_id"),
    )
    op.create_index("lcf_deliveries_waiting", "lcf_deliveries", ["namespace", "state", "next_at"])
    op.create_table(
        "lcf_owner_items",
        sa.Column("item_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("about", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=True),
        sa.Column("chunk_id", sa.String(), nullable=True),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("trace_id", sa.String(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("retest", sa.Text(), nullable=True),
        sa.Column("opened_by", sa.String(), nullable=True),
        sa.Column("opened_at", _TIME, nullable=False),
        sa.Column("changed_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("item_id"),
        sa.UniqueConstraint("namespace", "about", name="lcf_owner_items_about"),
    )
    op.create_index("lcf_owner_items_state", "lcf_owner_items", ["namespace", "state"])
    op.create_table(
        "lcf_review_items",
        sa.Column("item_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("question_id", sa.BigInteger(), nullable=True),
        sa.Column("trace_id", sa.String(), nullable=True),
        sa.Column("failure_class", sa.String(), nullable=True),
        sa.Column("guess", sa.String(), nullable=True),
        sa.Column("priority", sa.Float(), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reviews_required", sa.Integer(), nullable=False),
        sa.Column("claimed_by", sa.String(), nullable=True),
        sa.Column("claimed_until", _TIME, nullable=True),
        sa.Column("claim_token", sa.String(), nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.Column("decided_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("item_id"),
    )
    op.create_index(
        "lcf_review_items_next", "lcf_review_items", ["namespace", "state", "priority"]
    )
    op.create_index("lcf_review_items_trace", "lcf_review_items", ["trace_id"])
    op.create_table(
        "lcf_source_alarms",
        sa.Column("alarm_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("statistic", sa.Float(), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("raised_at", _TIME, nullable=False),
        sa.Column("closed_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("alarm_id"),
    )
    op.create_index("lcf_source_alarms_open", "lcf_source_alarms", ["namespace", "closed_at"])
    op.create_table(
        "lcf_owner_events",
        sa.Column("seq", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("item_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["lcf_owner_items.item_id"]),
        sa.PrimaryKeyConstraint("seq"),
        sqlite_autoincrement=True,
    )
    op.create_index("lcf_owner_events_item", "lcf_owner_events", ["item_id"])
    op.create_table(
        "lcf_review_events",
        sa.Column("seq", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("item_id", sa.String(), nullable=False),
        sa.Column("reviewer", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=True),
        sa.Column("right_chunks", sa.Text(), nullable=True),
        sa.Column("none_exists", sa.Boolean(), nullable=True),
        sa.Column("failure_class", sa.String(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("correction", sa.Text(), nullable=True),
        sa.Column("effects", sa.Text(), nullable=True),
        sa.Column("undoes", sa.BigInteger(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["lcf_review_items.item_id"]),
        sa.PrimaryKeyConstraint("seq"),
        sqlite_autoincrement=True,
    )
    op.create_index("lcf_review_events_item", "lcf_review_events", ["item_id"])
    op.create_index("lcf_review_events_reviewer", "lcf_review_events", ["namespace", "reviewer"])
