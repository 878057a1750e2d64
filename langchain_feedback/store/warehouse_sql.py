"""What votes credit, in the SQL of DuckDB: `credits_of` and the half of `add_up` that picks.

The statements say what `store.evidence` and `ranking.attribution` say, and a test compares them
on random histories. Only the sums are not in them: DuckDB adds floating-point numbers in the
order of its threads, and the store's sums do not depend on any order.
"""

from langchain_feedback.signals import SIGNALS, click_weight

__all__ = ["COUNTED", "VIEWS"]

_MOVING = ", ".join(f"'{name}'" for name, kind in SIGNALS.items() if kind.moves_ranking)
_FAMILY = SIGNALS["rating"].family
_MOST = click_weight(1_000_000)
_BYSTANDER = "0.3::DOUBLE"

VIEWS = f"""
-- Of each voter, family and target of a trace the newest event speaks, also to say nothing.
CREATE TEMP VIEW in_force AS
SELECT s.*, t.question_id, t.grounded, coalesce(
    nullif(s.actor, ''), nullif(t.actor, ''),
    'session:' || nullif(t.session_id, ''), 'trace:' || t.trace_id) AS voter
FROM signals s JOIN traces t USING (trace_id)
WHERE s.state IS NULL
QUALIFY row_number() OVER (
    PARTITION BY trace_id, voter, s.family, s.target ORDER BY s.seq DESC) = 1;

CREATE TEMP VIEW votes AS
SELECT seq, trace_id, question_id, grounded, voter, family, signal, target, polarity,
    weight::DOUBLE AS weight, received_at
FROM in_force WHERE retracted_at IS NULL AND signal IN ({_MOVING});

-- What the last answer was written from; chunks of one text and source are one.
CREATE TEMP VIEW prompt AS
SELECT trace_id, cell_id, content_hash, cited, relevant,
    count(*) OVER of_trace AS chunks, bool_or(cited IS NOT NULL) OVER of_trace AS is_cited_known
FROM (
    SELECT trace_id, cell_id, content_hash, bool_or(cited) AS cited,
        bool_or(CASE grade WHEN 'yes' THEN true WHEN 'no' THEN false END) AS relevant
    FROM (
        SELECT * FROM candidates WHERE in_prompt
        QUALIFY attempt = max(attempt) OVER (PARTITION BY trace_id))
    GROUP BY trace_id, cell_id, content_hash)
WINDOW of_trace AS (PARTITION BY trace_id);

CREATE TEMP VIEW named AS
SELECT * FROM candidates
QUALIFY row_number() OVER (
    PARTITION BY trace_id, chunk_id ORDER BY attempt DESC, final_rank DESC) = 1;

CREATE TEMP VIEW shares AS
-- a source rated or clicked
SELECT v.*, n.cell_id, n.content_hash, v.polarity * (v.weight * CASE signal
    WHEN 'source_click' THEN least(n.final_rank + 1, {_MOST})::DOUBLE ELSE 1.0::DOUBLE END
    ) AS share
FROM votes v JOIN named n ON n.trace_id = v.trace_id AND n.chunk_id = v.target
WHERE v.target <> ''
UNION ALL
-- an answer rated
SELECT v.*, p.cell_id, p.content_hash, v.polarity * v.weight * CASE
    WHEN NOT p.is_cited_known THEN 1.0::DOUBLE / sqrt(p.chunks::DOUBLE)
    WHEN v.polarity >= 0 OR p.cited THEN 1.0::DOUBLE ELSE {_BYSTANDER} END AS share
FROM votes v JOIN prompt p ON p.trace_id = v.trace_id
WHERE v.target = ''
    AND (NOT p.is_cited_known OR v.polarity < 0 OR coalesce(p.cited, false))
    AND NOT (v.polarity < 0 AND v.grounded IS NOT DISTINCT FROM false
        AND coalesce(p.relevant, false))
UNION ALL
-- how the answer fared
SELECT v.*, '' AS cell_id, '' AS content_hash, v.polarity::DOUBLE AS share
FROM votes v WHERE v.target = '' AND v.family = '{_FAMILY}';
"""  # noqa: S608  names and numbers of our own
"""Over the tables `signals`, `traces` and `candidates`."""

COUNTED = """
SELECT question_id, cell_id AS chunk_id, content_hash, share,
    epoch_us(received_at) AS voted_us
FROM (
    SELECT * FROM shares
    -- one person, one vote
    QUALIFY row_number() OVER (
        PARTITION BY question_id, cell_id, content_hash, voter, family ORDER BY seq DESC) = 1)
WHERE share <> 0
ORDER BY question_id, cell_id, content_hash
"""
"""The votes that count, cell by cell, with what each says before it ages."""
