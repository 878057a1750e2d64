"""What the bridge asks of LangSmith: the run of an answer, and its feedback."""

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from langsmith import Client
from langsmith.schemas import Feedback
from langsmith.utils import LangSmithConflictError, LangSmithNotFoundError, get_tracer_project

from langchain_feedback.integrations._langsmith_feedback import Sent
from langchain_feedback.traces import SEARCHED_FOR_KEY, TRACE_ID_KEY

__all__ = ["LangSmithApi"]

_KEYS = (SEARCHED_FOR_KEY, TRACE_ID_KEY)
_MARGIN = timedelta(days=1)
_LONGEST_WAY = timedelta(days=30)
_KNOWN_RUNS = 1_000
_PAGE = 100
# Of a client that the bridge makes: to connect, and to wait for an answer.
_TIMEOUT_MS = (5_000, 15_000)


class LangSmithApi:
    """Calls LangSmith, one request after the other: whatever returns has arrived.

    Runs are asked for at the endpoint of `client.runs.query`, which is a coroutine only, and
    whose forerunner `list_runs` will be gone. All of it goes through the client's own session.
    """

    def __init__(
        self, client: Client | None, project: str | None, *, extend_retention: bool
    ) -> None:
        self.client = client or Client(auto_batch_tracing=False, timeout_ms=_TIMEOUT_MS)
        self.project = project or get_tracer_project() or "default"
        self._extend_retention = extend_retention
        self._project_id: UUID | None = None
        self._runs: OrderedDict[str, UUID] = OrderedDict()

    @property
    def project_id(self) -> UUID:
        """The project's id; LangSmith makes the project when its first run arrives."""
        if self._project_id is None:
            self._project_id = self.client.read_project(project_name=self.project).id
        return self._project_id

    # -- runs

    def run_of(self, trace_id: str, asked_at: datetime) -> UUID | None:
        """Return the root run under which a trace was retrieved; None: it is not there (yet)."""
        if trace_id in self._runs:
            return self._runs[trace_id]
        named = json.dumps(trace_id, ensure_ascii=False)
        wanted = (
            f"and(eq(metadata_key, {json.dumps(key)}), eq(metadata_value, {named}))"
            for key in _KEYS
        )
        query = {"filter": f"or({', '.join(wanted)})", "selects": ["ID", "TRACE_ID"]}
        for run in self._query(query | {"page_size": 1}, asked_at - _MARGIN):
            self._runs[trace_id] = UUID(run.get("trace_id") or run["id"])
            if len(self._runs) > _KNOWN_RUNS:
                self._runs.popitem(last=False)
            return self._runs[trace_id]
        return None

    def trace_ids_of(self, feedback: Feedback, root: UUID, before: datetime) -> set[str]:
        """Return the trace ids that the rated run, or a run below it, was made for."""
        present = ", ".join(f"eq(metadata_key, {json.dumps(key)})" for key in _KEYS)
        query = {
            "trace_id": str(root),
            "filter": f"or({present})",
            "selects": ["ID", "METADATA", "PARENT_RUN_IDS"],
            "page_size": _PAGE,
        }
        rated, found = str(feedback.run_id or root), set()
        for run in self._query(query, before - _LONGEST_WAY):
            metadata = run.get("metadata") or {}
            trace_id = next((metadata[key] for key in _KEYS if metadata.get(key)), None)
            line = [*(run.get("parent_run_ids") or ()), run["id"]]
            if trace_id and (rated == str(root) or rated in line):
                found.add(str(trace_id))
        return found

    def _query(self, query: Mapping[str, Any], since: datetime) -> Iterator[dict[str, Any]]:
        body = dict(query)
        body |= {"project_ids": [str(self.project_id)], "min_start_time": since.isoformat()}
        while True:
            answer = self.client.request_with_retries(
                "POST", "/api/v2/runs/query", request_kwargs={"data": json.dumps(body)}
            ).json()
            yield from answer.get("items") or ()
            if not answer.get("next_cursor"):
                return
            body["cursor"] = answer["next_cursor"]

    # -- feedback

    def put(self, run_id: UUID, sent: Sent, *, repeats: bool) -> bool:
        """Make feedback say this, whether it is there or not; False: the run is not there."""
        if repeats and self._update(sent):
            return True
        try:
            with _unlogged():
                self.client.create_feedback(
                    # Not as `trace_id`: then it would be queued, and nobody would know.
                    run_id=run_id,
                    key=sent.key,
                    score=sent.score,
                    value=sent.value,
                    comment=sent.comment,
                    correction=sent.correction,
                    source_info=sent.source,
                    feedback_id=sent.feedback_id,
                    session_id=self.project_id,
                    extend_trace_retention=self._extend_retention,
                    stop_after_attempt=1,
                )
        except LangSmithConflictError:
            return self._update(sent)
        except LangSmithNotFoundError:
            return False
        return True

    def take_back(self, feedback_id: UUID) -> bool:
        """Empty feedback; False: it is not there.

        It is not deleted: LangSmith has brought deleted feedback back
        (github.com/langchain-ai/langsmith-sdk/issues/2525), and the person may rate again.
        """
        return self._update(Sent(feedback_id, "", None, "retracted", None, None, {}))

    def feedback_since(self, keys: Sequence[str], since: datetime) -> Iterator[Feedback]:
        """Yield the project's feedback of some keys that was given since then."""
        return self.client.list_feedback(
            feedback_key=list(keys),
            session=[str(self.project_id)],
            min_created_at=since.isoformat(),
        )

    def _update(self, sent: Sent) -> bool:
        try:
            self.client.update_feedback(
                sent.feedback_id,
                score=sent.score,
                value=sent.value,
                comment=sent.comment,
                correction=sent.correction,
            )
        except LangSmithNotFoundError:
            return False
        return True


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep the client from logging a failure in this thread with a traceback, each time."""
    thread, log = threading.get_ident(), logging.getLogger("langsmith.client")

    def is_others(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.getMessage() != "Error creating feedback"

    log.addFilter(is_others)
    try:
        yield
    finally:
        log.removeFilter(is_others)
