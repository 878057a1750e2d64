"""Traces: what a search returned, and what became of the answer."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from langchain_core.documents import Document

from langchain_feedback.store import incoming, tracing, voting
from langchain_feedback.store.parts.base import StoreBase, Vector, now, twin
from langchain_feedback.store.records import (
    TracedChunk,
    TraceRecord,
)
from langchain_feedback.traces import storable

__all__ = ["Traces"]

Chunks = Iterable[Document | str]


class Traces(StoreBase):
    """The part of the store that keeps retrievals."""

    def record_trace(
        self,
        trace_id: str,
        question: str,
        documents: Iterable[Document | TracedChunk],
        *,
        attempt: int = 1,
        query: str | None = None,
        actor: str | None = None,
        session_id: str | None = None,
        vector: Vector | None = None,
        id_field: str | None = None,
        answer: str | None = None,
        model: str | None = None,
        index_version: str | None = None,
        traffic: str | None = None,
        ranker_id: str | None = None,
        shadow_id: str | None = None,
        experiment: str | None = None,
    ) -> None:
        """Keep what a search returned. The same search twice changes nothing.

        Args:
            trace_id: See `new_trace_id`.
            question: The user's own question: what feedback will be about.
            documents: What was returned, in order.
            attempt: Which search of this trace, from 1.
            query: What was searched for, where it is not the question.
            actor: Whose question it is: a user id.
            session_id: Stands in for an unknown actor.
            vector: The question's embedding; without it the store embeds the question.
            id_field: The metadata field that holds a chunk's id, if any.
            answer: What was answered, if it is known already.
            model: Which model answers.
            index_version: Which build of the index was searched.
            traffic: `eval` or `playground` where nobody in earnest asked: it counts as any other
                for ranking, and never as a failure to review.
            ranker_id: Which learned ranker ordered the pool.
            shadow_id: Which one ordered it for comparison only.
            experiment: The id of the experiment that this is part of.

        Raises:
            StoreError: If it could not be written; nothing is half written.
            TraceReusedError: If the id is that of another question.
            ValueError: If the question is blank, or `attempt` is below 1.
        """
        new = incoming.new_trace(
            trace_id, self._question(question, vector, embed=True), documents,
            attempt=attempt, query=query, id_field=id_field, created_at=now(),
            facts=_facts(
                actor=actor, session_id=session_id, answer=answer,
                model=model, index_version=index_version, traffic=traffic,
                ranker_id=ranker_id, shadow_id=shadow_id, experiment=experiment,
            ),
        )  # fmt: skip
        self._write(new)

    def record_soon(
        self,
        trace_id: str,
        question: str,
        documents: Iterable[Document | TracedChunk],
        *,
        attempt: int = 1,
        query: str | None = None,
        actor: str | None = None,
        session_id: str | None = None,
        vector: Vector | None = None,
        id_field: str | None = None,
        answer: str | None = None,
        model: str | None = None,
        index_version: str | None = None,
        traffic: str | None = None,
        ranker_id: str | None = None,
        shadow_id: str | None = None,
        experiment: str | None = None,
    ) -> None:
        """Do as `record_trace`, without keeping an answer waiting: it embeds nothing.

        What cannot be written within `timeout_s` waits in memory (at most 1,000 traces),
        and is written with the next trace, rating or `close`. It raises nothing.
        """
        try:
            new = incoming.new_trace(
                trace_id, self._question(question, vector), documents,
                attempt=attempt, query=query, id_field=id_field, created_at=now(),
                facts=_facts(
                    actor=actor, session_id=session_id, answer=answer,
                    model=model, index_version=index_version, traffic=traffic,
                    ranker_id=ranker_id, shadow_id=shadow_id, experiment=experiment,
                ),
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001  the answer goes out all the same
            self._say_away("trace", error)
        else:
            self._send(new)

    def update_trace(
        self,
        trace_id: str,
        *,
        in_prompt: Chunks | None = None,
        cited: Chunks | None = None,
        grades: Mapping[str, str] | None = None,
        answer: str | None = None,
        status: str | None = None,
        reason: str | None = None,
        grounded: bool | None = None,
        model: str | None = None,
        asked: Collection[str] | None = None,
        id_field: str | None = None,
    ) -> None:
        """Keep what became known later; ratings that came before are credited anew.

        Args:
            trace_id: A trace in the store.
            in_prompt: The chunks (or their ids) that the answer was written from.
            cited: The chunks that the answer provably quotes; an empty list says that
                citations are known and there are none.
            grades: `yes`, `no` or `unknown` by chunk id.
            id_field: The metadata field that holds a chunk's id, if any.
            answer: The answer that was given.
            status: `answered` or `abstained`.
            reason: Why it abstained: see `nodes.abstain`.
            grounded: Whether it was found grounded.
            model: Which model answered.
            asked: The question must be one of these, if given: a check against an id that
                was used twice.

        Raises:
            UnknownTraceError: If there is no such trace.
            UnknownChunkError: If a chunk was not retrieved for it.
            TraceReusedError: If it is the trace of another question than `asked`.
            ValueError: If a grade is none of the three.
        """
        facts = _facts(answer=answer, status=status, reason=reason, grounded=grounded, model=model)
        new = _update(trace_id, facts, in_prompt, cited, grades, asked=asked, id_field=id_field)
        self._outbox.flush(trace_id)
        self._write(new)

    def update_soon(
        self,
        trace_id: str,
        *,
        in_prompt: Chunks | None = None,
        cited: Chunks | None = None,
        grades: Mapping[str, str] | None = None,
        answer: str | None = None,
        status: str | None = None,
        reason: str | None = None,
        grounded: bool | None = None,
        model: str | None = None,
        asked: Collection[str] | None = None,
        id_field: str | None = None,
    ) -> None:
        """Do as `update_trace`, without keeping an answer waiting: see `record_soon`."""
        facts = _facts(answer=answer, status=status, reason=reason, grounded=grounded, model=model)
        try:
            new = _update(
                trace_id, facts, in_prompt, cited, grades, asked=asked, id_field=id_field
            )
        except Exception as error:  # noqa: BLE001
            self._say_away("trace", error)
        else:
            self._send(new)

    def _send(self, new: incoming.NewTrace | incoming.TraceUpdate) -> None:
        if error := self._outbox.send(new):
            self._say_away("write", error)

    def trace(self, trace_id: str) -> TraceRecord | None:
        """Return a trace with all its candidates, or None."""
        with self._reading() as connection:
            return tracing.read_trace(connection, self.namespace, trace_id)

    arecord_trace = twin(record_trace)
    arecord_soon = twin(record_soon)
    aupdate_trace = twin(update_trace)
    aupdate_soon = twin(update_soon)
    atrace = twin(trace)


def _update(
    trace_id: str,
    facts: Mapping[str, Any],
    in_prompt: Chunks | None,
    cited: Chunks | None,
    grades: Mapping[str, str] | None,
    *,
    asked: Collection[str] | None,
    id_field: str | None,
) -> incoming.TraceUpdate:
    ids = _ids(in_prompt, id_field), _ids(cited, id_field)
    return incoming.TraceUpdate(trace_id, facts, *ids, grades, asked)


def _ids(chunks: Chunks | None, id_field: str | None) -> list[str] | None:
    if chunks is None:
        return None
    return [c if isinstance(c, str) else voting.target_of(c, id_field) for c in chunks]


def _facts(**given: Any) -> dict[str, Any]:
    told = {name: value for name, value in given.items() if value is not None}
    return {
        name: storable(value) if isinstance(value, str) else value for name, value in told.items()
    }
