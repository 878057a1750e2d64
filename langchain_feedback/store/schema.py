"""The tables of the feedback store, as this release reads and writes them.

`migrations/` makes them; a test compares the two. Times are UTC. Answers are the
votes' target `""`, and the evidence cell `("", "")` of a question holds how its
answers fared, so that one rule serves chunks and answers.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from langchain_feedback.store.columns import SERIAL, UTCDateTime, instant, metadata

__all__ = [
    "ANSWER",
    "UTCDateTime",
    "chunks",
    "credits_",
    "evidence",
    "metadata",
    "pins",
    "questions",
    "settings",
    "signals",
    "trace_chunks",
    "trace_searches",
    "traces",
]

ANSWER = ""
"""The target of a vote on the whole answer, and the chunk id of the outcome cells."""


settings = Table(
    "lcf_settings",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)

questions = Table(
    "lcf_questions",
    metadata,
    Column("question_id", SERIAL, primary_key=True, autoincrement=True),
    Column("namespace", String, nullable=False),
    Column("question_key", String, nullable=False, doc="digest of the normalised text"),
    Column("text", Text, nullable=False),
    Column("vector", LargeBinary, doc="float32, little endian, unit length"),
    Column("embedder", String, doc="which model made the vector; others are not compared"),
    Column("memory_seq", BigInteger, doc="set once somebody voted: what similar questions find"),
    UniqueConstraint("namespace", "question_key", name="lcf_questions_key"),
    Index("lcf_questions_memory", "namespace", "memory_seq"),
    sqlite_autoincrement=True,
)

traces = Table(
    "lcf_traces",
    metadata,
    Column("trace_id", String, primary_key=True),
    Column("namespace", String, nullable=False),
    Column("question_id", ForeignKey(questions.c.question_id), nullable=False),
    Column("actor", String),
    Column("session_id", String),
    Column("answer", Text),
    Column("status", String),
    Column("reason", String, doc="why it abstained"),
    Column("grounded", Boolean),
    Column("model", String),
    Column("index_version", String),
    Column("traffic", String, doc="null: a person's; `eval` or `playground` is nobody's failure"),
    Column("ranker_id", String, doc="which learned ranker ordered the pool"),
    Column("shadow_id", String, doc="which one ordered it for comparison only"),
    Column("experiment", String, doc="the id of the experiment that it is part of"),
    instant("created_at", nullable=False),
    Index("lcf_traces_created", "namespace", "created_at"),
    Index("lcf_traces_session", "namespace", "session_id"),
    Index("lcf_traces_question", "question_id"),
    Index("lcf_traces_actor", "namespace", "actor"),
    Index("lcf_traces_experiment", "namespace", "experiment"),
)

trace_searches = Table(
    "lcf_trace_searches",
    metadata,
    Column("trace_id", ForeignKey(traces.c.trace_id, ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("query", Text, nullable=False),
)

trace_chunks = Table(
    "lcf_trace_chunks",
    metadata,
    Column("trace_id", ForeignKey(traces.c.trace_id, ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("chunk_id", String, primary_key=True),
    Column("cell_id", String, nullable=False, doc="the chunk id of its evidence"),
    Column("content_hash", String, nullable=False),
    Column("base_rank", Integer),
    Column("final_rank", Integer, nullable=False),
    Column("base_score", Float),
    Column("belief", Float, nullable=False),
    Column("multiplier", Float),
    Column("final_score", Float),
    Column("origin", String, nullable=False),
    Column("returned", Boolean, nullable=False),
    Column("in_prompt", Boolean, nullable=False),
    Column("cited", Boolean, doc="null while no citations are known"),
    Column("grade", String),
    Column("ranker_rank", Integer, doc="in the pool as the learned ranker ordered it"),
    Column("shadow_rank", Integer, doc="as one would that is only watched"),
    Column("team", String, doc="which retriever of an experiment it came from"),
    Index("lcf_trace_chunks_cell", "cell_id"),
)

chunks = Table(
    "lcf_chunks",
    metadata,
    Column("namespace", String, primary_key=True),
    Column("chunk_id", String, primary_key=True),
    Column("document_id", String, doc="the document's own id, where it has one"),
    Column("content_hash", String, nullable=False),
    Column("cell_id", String, nullable=False, doc="the chunk id of its evidence"),
    Column("text", Text, nullable=False),
    Column("metadata", Text, nullable=False, doc="JSON"),
    Column("dropped", Text, nullable=False, doc="JSON: metadata that JSON cannot hold"),
    Column("source", Text, nullable=False),
    instant("last_seen", nullable=False),
    Column("position", Integer, doc="among the chunks of its source; null: not known"),
    Column("start_index", Integer, doc="of its text in the source's"),
    Column("scope", String, doc="whose it is, such as a tenant"),
    Column(
        "status",
        String,
        nullable=False,
        server_default="live",
        doc="`live`, `missing`, `demoted` or `retired`",
    ),
    instant("first_seen", doc="in the index; null: only seen in answers"),
    instant("changed_at", doc="when its text was another one before"),
    Index("lcf_chunks_cell", "namespace", "cell_id"),
    Index("lcf_chunks_status", "namespace", "status"),
)

signals = Table(
    "lcf_signals",
    metadata,
    Column("seq", SERIAL, primary_key=True, autoincrement=True),
    Column("namespace", String, nullable=False),
    Column("event_id", String, nullable=False),
    Column("trace_id", String, nullable=False),
    Column("attached", Boolean, nullable=False, doc="false while its trace is awaited"),
    Column("family", String, nullable=False),
    Column("signal", String, nullable=False),
    Column("target", String, nullable=False, doc="a chunk id; empty for the answer"),
    Column("rating", Integer),
    Column("polarity", Integer, nullable=False),
    Column("weight", Float, nullable=False),
    Column("value", Float, doc="milliseconds of a dwell"),
    Column("actor", String, doc="as given; else the trace's actor or session speaks"),
    Column("reviewer", Boolean, nullable=False),
    Column("comment", Text),
    Column("correction", Text),
    instant("client_time"),
    instant("received_at", nullable=False),
    instant("retracted_at"),
    Column("state", String, doc="null: it counts; `held` or `dropped` with its burst"),
    Column("burst_id", String, doc="the burst in which it came"),
    UniqueConstraint("namespace", "event_id", name="lcf_signals_event"),
    Index("lcf_signals_trace", "trace_id"),
    Index("lcf_signals_actor", "namespace", "actor"),
    Index("lcf_signals_received", "namespace", "received_at"),
    Index("lcf_signals_burst", "burst_id"),
    sqlite_autoincrement=True,
)

pins = Table(
    "lcf_pins",
    metadata,
    Column("pin_id", String, primary_key=True),
    Column("namespace", String, nullable=False),
    Column("question_id", ForeignKey(questions.c.question_id), nullable=False),
    Column("chunk_id", String, nullable=False, doc="the cell's chunk id"),
    Column("content_hash", String, nullable=False),
    Column("actor", String),
    instant("created_at", nullable=False),
    instant("retracted_at"),
    Index("lcf_pins_question", "question_id"),
)

credits_ = Table(
    "lcf_credits",
    metadata,
    Column("question_id", ForeignKey(questions.c.question_id), primary_key=True),
    Column("chunk_id", String, primary_key=True),
    Column("content_hash", String, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False, doc="the vote"),
    Column("actor", String, nullable=False),
    Column("family", String, nullable=False),
    Column("polarity", Integer, nullable=False),
    Column("weight", Float, nullable=False),
    instant("voted_at", nullable=False),
    Index("lcf_credits_seq", "seq"),
    Index("lcf_credits_chunk", "chunk_id", "voted_at"),
)

evidence = Table(
    "lcf_evidence",
    metadata,
    Column("question_id", ForeignKey(questions.c.question_id), primary_key=True),
    Column("chunk_id", String, primary_key=True),
    Column("content_hash", String, primary_key=True),
    Column("positive", Float, nullable=False),
    Column("negative", Float, nullable=False),
    instant("as_of", nullable=False, doc="the newest vote's time, to which the sums are decayed"),
    sqlite_with_rowid=False,
)
