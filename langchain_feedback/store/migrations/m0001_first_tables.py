"""The first tables. A migration is history: it never changes, the next one does."""

from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from alembic.operations import Operations

__all__ = ["upgrade"]

_TIME = sa.DateTime(timezone=True)
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade(op: "Operations") -> None:
    """Make every table."""
    op.create_table(
        "lcf_chunks",
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("chunk_id", sa.String(), nullable=False),
        sa.Column("document_id", sa.String(), nullable=True),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("cell_id", sa.String(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("dropped", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("last_seen", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("namespace", "chunk_id"),
    )
    op.create_index("lcf_chunks_cell", "lcf_chunks", ["namespace", "cell_id"])
    op.create_table(
        "lcf_questions",
        sa.Column("question_id", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("question_key", sa.String(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=True),
        sa.Column("embedder", sa.String(), nullable=True),
        sa.Column("memory_seq", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("question_id"),
        sa.UniqueConstraint("namespace", "question_key", name="lcf_questions_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("lcf_questions_memory", "lcf_questions", ["namespace", "memory_seq"])
    op.create_table(
        "lcf_settings",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "lcf_signals",
        sa.Column("seq", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("trace_id", sa.String(), nullable=False),
        sa.Column("attached", sa.Boolean(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("signal", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("rating", sa.Integer(), nullable=True),
        sa.Column("polarity", sa.Integer(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("actor", sa.String(), nullable=True),
        sa.Column("reviewer", sa.Boolean(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=True),
        sa.Column("correction", sa.Text(), nullable=True),
        sa.Column("client_time", _TIME, nullable=True),
        sa.Column("received_at", _TIME, nullable=False),
        sa.Column("retracted_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("namespace", "event_id", name="lcf_signals_event"),
        sqlite_autoincrement=True,
    )
    op.create_index("lcf_signals_actor", "lcf_signals", ["namespace", "actor"])
    op.create_index("lcf_signals_received", "lcf_signals", ["namespace", "received_at"])
    op.create_index("lcf_signals_trace", "lcf_signals", ["trace_id"])
    op.create_table(
        "lcf_credits",
        sa.Column("question_id", _SERIAL, nullable=False),
        sa.Column("chunk_id", sa.String(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("polarity", sa.Integer(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("voted_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["question_id"], ["lcf_questions.question_id"]),
        sa.PrimaryKeyConstraint("question_id", "chunk_id", "content_hash", "seq"),
    )
    op.create_index("lcf_credits_chunk", "lcf_credits", ["chunk_id", "voted_at"])
    op.create_index("lcf_credits_seq", "lcf_credits", ["seq"])
    op.create_table(
        "lcf_evidence",
        sa.Column("question_id", _SERIAL, nullable=False),
        sa.Column("chunk_id", sa.String(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("positive", sa.Float(), nullable=False),
        sa.Column("negative", sa.Float(), nullable=False),
        sa.Column("as_of", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["question_id"], ["lcf_questions.question_id"]),
        sa.PrimaryKeyConstraint("question_id", "chunk_id", "content_hash"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "lcf_pins",
        sa.Column("pin_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("question_id", _SERIAL, nullable=False),
        sa.Column("chunk_id", sa.String(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("retracted_at", _TIME, nullable=True),
        sa.ForeignKeyConstraint(["question_id"], ["lcf_questions.question_id"]),
        sa.PrimaryKeyConstraint("pin_id"),
    )
    op.create_index("lcf_pins_question", "lcf_pins", ["question_id"])
    op.create_table(
        "lcf_traces",
        sa.Column("trace_id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("question_id", _SERIAL, nullable=False),
        sa.Column("actor", sa.String(), nullable=True),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("status", sa.String(), nullable=True),
        sa.Column("grounded", sa.Boolean(), nullable=True),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("index_version", sa.String(), nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["question_id"], ["lcf_questions.question_id"]),
        sa.PrimaryKeyConstraint("trace_id"),
    )
    op.create_index("lcf_traces_actor", "lcf_traces", ["namespace", "actor"])
    op.create_index("lcf_traces_created", "lcf_traces", ["namespace", "created_at"])
    op.create_index("lcf_traces_question", "lcf_traces", ["question_id"])
    op.create_table(
        "lcf_trace_chunks",
        sa.Column("trace_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("chunk_id", sa.String(), nullable=False),
        sa.Column("cell_id", sa.String(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("base_rank", sa.Integer(), nullable=True),
        sa.Column("final_rank", sa.Integer(), nullable=False),
        sa.Column("base_score", sa.Float(), nullable=True),
        sa.Column("belief", sa.Float(), nullable=False),
        sa.Column("multiplier", sa.Float(), nullable=True),
        sa.Column("final_score", sa.Float(), nullable=True),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("returned", sa.Boolean(), nullable=False),
        sa.Column("in_prompt", sa.Boolean(), nullable=False),
        sa.Column("cited", sa.Boolean(), nullable=True),
        sa.Column("grade", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["trace_id"], ["lcf_traces.trace_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("trace_id", "attempt", "chunk_id"),
    )
    op.create_index("lcf_trace_chunks_cell", "lcf_trace_chunks", ["cell_id"])
    op.create_table(
        "lcf_trace_searches",
        sa.Column("trace_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["trace_id"], ["lcf_traces.trace_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("trace_id", "attempt"),
    )
