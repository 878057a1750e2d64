"""Queries and clicks in the form of User Behavior Insights 1.3.0, out of the store and into it.

UBI (https://github.com/o19s/ubi) is what OpenSearch and Solr log searches in, and what their
tools make judgments from. A trace is a query, and a signal is an event:

| UBI | here |
| --- | --- |
| `query_id` | the trace id |
| `user_query`, `timestamp` | the question, and when it was asked |
| `query_response_hit_ids` | the chunk ids that the last search returned, in their order |
| `client_id`, `session_id` | the session, or else who asked |
| `action_name` | `click` is a `source_click`; other signals go by their own names |
| `event_attributes.object.object_id` | the chunk id; without an object it is about the answer |
| `event_attributes.position.ordinal` | the rank from 1; 0: the answer, which stands above all |

What UBI has no field for stands in `query_attributes.langchain_feedback` and
`event_attributes.langchain_feedback`. For a copy of the store that lacks nothing use
`FeedbackStore.export_jsonl`.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from langchain_core.documents import Document
from sqlalchemy import Connection, select

from langchain_feedback.integrations._ubi_import import Importer, Problem
from langchain_feedback.integrations._ubi_lines import ACTIONS, event_lines, query_line
from langchain_feedback.loop._exporting.files import as_line, write_folder
from langchain_feedback.signals import signal_kind
from langchain_feedback.store.asking import Ask, read_asks
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import traces
from langchain_feedback.store.transactions import reading

__all__ = [
    "EVENTS",
    "QUERIES",
    "Problem",
    "UbiExported",
    "UbiImported",
    "export_ubi",
    "import_ubi",
]

QUERIES, EVENTS = "ubi_queries.jsonl", "ubi_events.jsonl"
"""The files that an export writes."""

_PAGE = 200


@dataclass(frozen=True)
class UbiExported:
    """What an export wrote."""

    queries: int
    events: int
    files: tuple[Path, ...]


@dataclass(frozen=True)
class UbiImported:
    """What an import did."""

    queries: int
    """Questions that are new, or of which more hits are known now."""
    events: int
    """Signals that are new."""
    duplicates: int
    """Lines that the store held already."""
    ignored: int
    """Events whose action is no signal, such as an impression."""
    unknown: frozenset[str]
    """Hits whose text nobody knows: they were left out."""
    problems: tuple[Problem, ...]
    """What is wrong with each other line that was left out, in order."""


def export_ubi(
    store: FeedbackStore,
    folder: str | os.PathLike[str],
    *,
    application: str = "langchain-feedback",
    since: datetime | None = None,
    impressions: bool = True,
    overwrite: bool = False,
) -> UbiExported:
    """Write the questions of a namespace and what was said of them, as JSON lines.

    Signals that were taken back, replaced, or held back as part of a burst are left out, and so
    is the traffic of evaluations and playgrounds.

    Args:
        store: Whose questions.
        folder: Where the two files appear, once both are complete.
        application: What UBI is to call this application.
        since: Only what was asked then or later: a time with a zone.
        impressions: Whether each chunk that was returned is an event, too.
        overwrite: Whether files of an earlier export may be replaced.

    Raises:
        ValueError: If the folder holds something and `overwrite` is false.
        StoreError: If the files cannot be written, or the database not be read.
    """
    counts = {QUERIES: 0, EVENTS: 0}
    # What is asked meanwhile stands in neither file.
    span = {"since": since, "until": datetime.now(UTC)}

    def counted(file: str, connection: Connection) -> Iterator[str]:
        for ask in _asks(connection, store.namespace, span):
            lines = (
                [query_line(ask, application)]
                if file == QUERIES
                else event_lines(ask, application, impressions=impressions)
            )
            for line in lines:
                counts[file] += 1
                yield as_line(line)

    with reading(store) as connection:
        files = write_folder(
            Path(folder), {file: counted(file, connection) for file in counts}, overwrite=overwrite
        )
    return UbiExported(counts[QUERIES], counts[EVENTS], files)


def import_ubi(
    store: FeedbackStore,
    queries: str | os.PathLike[str] | None = None,
    events: str | os.PathLike[str] | None = None,
    *,
    documents: Callable[[str], Document | None] | None = None,
    actions: Mapping[str, str] | None = None,
) -> UbiImported:
    """Read an old click log: UBI queries and events as JSON lines, in UTF-8.

    Each line is imported as a whole or not at all, and importing it again adds nothing. Times
    without a zone are UTC. Who asked speaks, unless an event has a `user_id`. A store with
    embeddings finds these questions by similar ones after `store.embed_questions()`.

    Args:
        store: Where to.
        queries: The file of queries; import those before their events.
        events: The file of events.
        documents: Returns the chunk of an object id, or None. Feedback is on texts: a hit that
            neither this nor the store knows is left out, and so are clicks on it. Import
            the files again once it is known.
        actions: Which signal an action is, besides `click`, `click_through` and the names of
            the signals; for example `{"add_to_cart": "thumbs_up"}`.

    Raises:
        ValueError: If an action is to be a signal that there is not.
        StoreError: If a file cannot be read, or the database not be written.
    """
    for signal in (actions or {}).values():
        signal_kind(signal)
    importer = Importer(store, {**ACTIONS, **(actions or {})}, documents or (lambda _: None))
    for file, path in (("queries", queries), ("events", events)):
        if path is not None:
            importer.read(file, path)
    return UbiImported(
        **importer.counts,
        unknown=frozenset(importer.unknown),
        problems=tuple(
            sorted(importer.problems, key=lambda one: (one.file != "queries", one.line))
        ),
    )


def _asks(connection: Connection, namespace: str, span: Mapping[str, object]) -> Iterator[Ask]:
    """Return the questions of a namespace, a page at a time, by trace id: those sort by time."""
    ids = select(traces.c.trace_id).where(traces.c.namespace == namespace)
    ids = ids.order_by(traces.c.trace_id).limit(_PAGE)
    page = list(connection.execute(ids).scalars())
    while page:
        yield from read_asks(connection, namespace, trace_ids=page, **span)  # type: ignore[arg-type]
        page = list(connection.execute(ids.where(traces.c.trace_id > page[-1])).scalars())
