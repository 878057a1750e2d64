"""The tables of the loop: limits, the review queue, alarms, and what owners are told.

They hold snapshots and ids without foreign keys to traces: retention removes those first.
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
    "counters",
    "deliveries",
    "owner_events",
    "owner_items",
    "review_events",
    "review_items",
    "source_alarms",
]

counters = Table(
    "lcf_counters",
    metadata,
    Column("bucket", String, primary_key=True, doc="a token, an actor or an address, as a digest"),
    instant("hour", primary_key=True),
    Column("count", Integer, nullable=False),
    Index("lcf_counters_hour", "hour"),
)

review_items = Table(
    "lcf_review_items",
    metadata,
    Column("item_id", String, primary_key=True, doc="digest of what it is about: mined once"),
    Column("namespace", String, nullable=False),
    Column("kind", String, nullable=False, doc="`answer`, or `burst` for signals held back"),
    Column("question_id", BigInteger, doc="no foreign key: the item outlives what it is about"),
    Column("trace_id", String),
    Column("failure_class", String),
    Column("guess", String, doc="the chunk that the system holds to be wrong"),
    Column("priority", Float, nullable=False),
    Column("snapshot", Text, nullable=False, doc="JSON: all that a reviewer sees"),
    Column("state", String, nullable=False, doc="`open`, `decided` or `expired`"),
    Column("reviews_required", Integer, nullable=False),
    Column("claimed_by", String),
    instant("claimed_until"),
    Column("claim_token", String),
    instant("created_at", nullable=False),
    instant("expires_at", nullable=False),
    instant("decided_at"),
    Index("lcf_review_items_next", "namespace", "state", "priority"),
    Index("lcf_review_items_trace", "trace_id"),
)

review_events = Table(
    "lcf_review_events",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=True),
    Column("namespace", String, nullable=False),
    Column("item_id", ForeignKey(review_items.c.item_id), nullable=False),
    Column("reviewer", String, nullable=False),
    Column("action", String, nullable=False, doc="`decide`, `skip`, `undo` or `expire`"),
    Column("verdict", String, doc="`confirm`, `reject` or `unclear`"),
    Column("right_chunks", Text, doc="JSON: chunk ids"),
    Column("none_exists", Boolean),
    Column("failure_class", String),
    Column("note", Text),
    Column("correction", Text),
    Column("effects", Text, doc="JSON: the pins, signals and owner items that it made"),
    Column("undoes", BigInteger, doc="the `seq` that an undo takes back"),
    Column("seconds", Float, doc="from claim to decision"),
    instant("at", nullable=False),
    Index("lcf_review_events_item", "item_id"),
    Index("lcf_review_events_reviewer", "namespace", "reviewer"),
    sqlite_autoincrement=True,
)

source_alarms = Table(
    "lcf_source_alarms",
    metadata,
    Column("alarm_id", String, primary_key=True),
    Column("namespace", String, nullable=False),
    Column("source", Text, nullable=False),
    Column("kind", String, nullable=False, doc="`complaints`, `changed`, `gone` or `reviewer`"),
    Column("statistic", Float),
    Column("evidence", Text, nullable=False, doc="JSON"),
    instant("raised_at", nullable=False),
    instant("closed_at"),
    Index("lcf_source_alarms_open", "namespace", "closed_at"),
)

owner_items = Table(
    "lcf_owner_items",
    metadata,
    Column("item_id", String, primary_key=True),
    Column("namespace", String, nullable=False),
    Column("about", String, nullable=False, doc="digest of what it is about: opened once"),
    Column(
        "kind", String, nullable=False, doc="`correction`, `missing_document` or `stale_document`"
    ),
    Column("source", Text, nullable=False, doc="empty where no document exists"),
    Column("content_hash", String, doc="of the chunk as it was wrong"),
    Column("chunk_id", String),
    Column("question", Text, nullable=False),
    Column("trace_id", String),
    Column("text", Text, nullable=False, doc="what would be right, or what is missing"),
    Column("snapshot", Text, nullable=False, doc="JSON: what its owner sees"),
    Column("owner", String, nullable=False, doc="empty where nobody owns the source"),
    Column("state", String, nullable=False),
    Column("retest", Text, doc="JSON: how the question was answered before and after"),
    Column("opened_by", String),
    instant("opened_at", nullable=False),
    instant("changed_at", nullable=False),
    UniqueConstraint("namespace", "about", name="lcf_owner_items_about"),
    Index("lcf_owner_items_state", "namespace", "state"),
)

owner_events = Table(
    "lcf_owner_events",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=True),
    Column("item_id", ForeignKey(owner_items.c.item_id), nullable=False),
    Column("state", String, nullable=False),
    Column("actor", String),
    Column("note", Text),
    instant("at", nullable=False),
    Index("lcf_owner_events_item", "item_id"),
    sqlite_autoincrement=True,
)

deliveries = Table(
    "lcf_deliveries",
    metadata,
    Column("delivery_id", String, primary_key=True, doc="digest of owner, week and items"),
    Column("namespace", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("channel", String, nullable=False),
    Column("address", String, nullable=False),
    Column("payload", Text, nullable=False, doc="JSON"),
    Column("state", String, nullable=False, doc="`waiting`, `sent` or `failed`"),
    Column("attempts", Integer, nullable=False),
    Column("error", Text),
    instant("next_at", nullable=False),
    instant("created_at", nullable=False),
    instant("sent_at"),
    Index("lcf_deliveries_waiting", "namespace", "state", "next_at"),
)
