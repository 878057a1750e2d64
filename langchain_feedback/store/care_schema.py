"""The tables of index care: what chunks are worth, what was written, folded back and changed.

Names of chunks are no foreign keys: an index holds chunks that no question has returned yet,
and an entry outlives its chunk. Actions are only ever added.
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
    text,
)

from langchain_feedback.store.columns import instant, metadata

__all__ = [
    "care_actions",
    "care_runs",
    "chunk_quality",
    "derived",
    "derived_sources",
    "index_entries",
    "index_records",
    "index_versions",
    "job_leases",
    "quality_overrides",
]

chunk_quality = Table(
    "lcf_chunk_quality",
    metadata,
    Column("content_hash", String, primary_key=True),
    Column("scoring_version", String, primary_key=True, doc="versions are never mixed"),
    Column("kind", String, nullable=False, doc="`prose`, `list`, `table` or `code`"),
    Column("legibility", Float, nullable=False, doc="in [0, 1], as the next two; below .5 gates"),
    Column("repetition", Float, nullable=False),
    Column("navigation", Float, nullable=False),
    Column("sufficiency", Float, nullable=False, doc="shown, never gates"),
    Column("answerability", Float, doc="null: not asked, or unknown"),
    Column("judge", String, doc="which model and prompt said so"),
    Column("reasons", Text, nullable=False, doc="JSON"),
    Column("gated", Boolean, nullable=False),
    instant("scored_at", nullable=False),
)

quality_overrides = Table(
    "lcf_quality_overrides",
    metadata,
    Column("namespace", String, primary_key=True),
    Column("content_hash", String, primary_key=True, doc="of a text that is no junk here"),
    Column("actor", String, doc="who said so; null: forgotten"),
    Column("reason", Text, nullable=False),
    instant("at", nullable=False),
)

index_entries = Table(
    "lcf_index_entries",
    metadata,
    Column("namespace", String, primary_key=True),
    Column("index_name", String, primary_key=True),
    Column("chunk_id", String, primary_key=True),
    Column("content_hash", String, nullable=False, doc="of the text"),
    Column("metadata_hash", String, nullable=False, doc="of the metadata: they are written too"),
    Column("state", String, nullable=False, doc="`writing`, `present`, `removing` or `removed`"),
    Column("run_id", String, nullable=False),
    instant("updated_at", nullable=False),
    Index("lcf_index_entries_state", "namespace", "index_name", "state"),
)

index_records = Table(
    "lcf_index_records",
    metadata,
    Column("namespace", String, primary_key=True),
    Column("index_name", String, primary_key=True),
    Column("key", String, primary_key=True, doc="what LangChain's `index` calls a document"),
    Column("group_id", String, doc="what it comes from; null: nobody said"),
    instant("updated_at", nullable=False, doc="by the server's clock"),
    Index("lcf_index_records_group", "namespace", "index_name", "group_id"),
)

derived = Table(
    "lcf_derived",
    metadata,
    Column("derived_id", String, primary_key=True, doc="from the question and its sources"),
    Column("namespace", String, nullable=False),
    Column("question_id", BigInteger, doc="no foreign key: retention may remove the question"),
    Column("trace_id", String),
    Column("text", Text, nullable=False),
    Column("status", String, nullable=False, doc="`candidate`, `active`, `expired`, `rejected`"),
    Column("approved_by", String),
    instant("approved_at"),
    instant("expires_at", doc="counted from the approval; use does not reset it"),
    Column("votes", Text, nullable=False, doc="JSON: what the gate rested on"),
    Index("lcf_derived_status", "namespace", "status"),
    Index("lcf_derived_question", "question_id"),
)

derived_sources = Table(
    "lcf_derived_sources",
    metadata,
    Column("derived_id", ForeignKey(derived.c.derived_id, ondelete="CASCADE"), primary_key=True),
    Column("chunk_id", String, primary_key=True),
    Column("content_hash", String, nullable=False, doc="as approved; another one hides it"),
    Index("lcf_derived_sources_chunk", "chunk_id"),
)

index_versions = Table(
    "lcf_index_versions",
    metadata,
    Column("namespace", String, primary_key=True),
    Column("version", String, primary_key=True),
    Column("status", String, nullable=False, doc="`building`, `ready`, `active`, `retired`"),
    Column("locator", Text, nullable=False, doc="JSON: what `open_version` needs"),
    Column("embedder", String, nullable=False, doc="its fingerprint"),
    Column("dimension", Integer, nullable=False),
    Column("chunk_count", Integer, nullable=False),
    Column("checks", Text, nullable=False, doc="JSON: what was checked before it was ready"),
    instant("created_at", nullable=False),
    instant("activated_at"),
    instant("retired_at"),
    Index(
        "lcf_index_versions_active",
        "namespace",
        unique=True,
        sqlite_where=text("status = 'active'"),
        postgresql_where=text("status = 'active'"),
    ),
)

care_runs = Table(
    "lcf_care_runs",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("namespace", String, nullable=False),
    Column("job", String, nullable=False),
    Column("dry_run", Boolean, nullable=False),
    Column("plan_digest", String, doc="what was reviewed is what runs"),
    Column("counts", Text, nullable=False, doc="JSON"),
    Column("status", String, nullable=False, doc="`running`, `done` or `failed`"),
    instant("started_at", nullable=False),
    instant("finished_at"),
    Index("lcf_care_runs_newest", "namespace", "job", "started_at"),
)

care_actions = Table(
    "lcf_care_actions",
    metadata,
    Column("action_id", String, primary_key=True),
    Column("run_id", ForeignKey(care_runs.c.run_id), nullable=False),
    Column("action", String, nullable=False, doc="`demote`, `remove`, `restore` or `expire`"),
    Column("target", String, nullable=False, doc="a chunk's or a derived document's id"),
    Column("before", Text, nullable=False, doc="JSON: text and metadata, to restore it from"),
    Column("reason", Text, nullable=False),
    Column("statistics", Text, nullable=False, doc="JSON: the figures that it rests on"),
    Column("actor", String),
    Column("undone_by", String, doc="the action that took it back"),
    instant("at", nullable=False),
    Index("lcf_care_actions_run", "run_id"),
    Index("lcf_care_actions_target", "target"),
)

job_leases = Table(
    "lcf_job_leases",
    metadata,
    Column("name", String, primary_key=True, doc="one job of one namespace"),
    Column("holder", String, nullable=False),
    instant("expires_at", nullable=False),
)
