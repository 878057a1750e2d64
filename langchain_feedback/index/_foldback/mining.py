"""Answers worth serving again: grounded, with proved quotes, and liked by somebody."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID, uuid5

from sqlalchemy import Connection, select

from langchain_feedback.index._foldback.gate import ANONYMOUS, Vote
from langchain_feedback.quotes.locate import locate_quote
from langchain_feedback.store.asking import Ask, read_asks
from langchain_feedback.store.derived_rows import Source
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.questions import question_key
from langchain_feedback.store.schema import ANSWER, signals, traces

__all__ = ["Proposal", "derived_id_of", "proposals", "quotes_are_proved"]

_IDS = UUID("7d1a6f0e-3c52-5b8e-9a40-1f6b2f0c9d11")
_QUOTED = re.compile(r"“([^”]+)”|\"([^\"]+)\"|«([^»]+)»|„([^“”]+)[“”]|「([^」]+)」")
_FEWEST_QUOTED = 3
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True)
class Proposal:
    """A question, and the answers to it that rest on the same texts."""

    derived_id: str
    question_id: int
    question: str
    trace_id: str
    """Of the newest answer that somebody liked."""
    text: str
    """That answer."""
    sources: tuple[Source, ...]
    """What it provably quotes, by chunk id."""
    votes: tuple[Vote, ...]
    """On all of these answers."""


def derived_id_of(namespace: str, question: str, hashes: Iterable[str]) -> str:
    """Return the id of an entry: the same question on the same texts is the same entry.

    It is the UUID (version 5) of the namespace, the question's key and the hashes in order.

    Example:
        >>> one = derived_id_of("default", "How long?", ["b", "a"])
        >>> one == derived_id_of("default", "how long", ["a", "b"])
        True
    """
    return str(uuid5(_IDS, json.dumps([namespace, question_key(question), sorted(set(hashes))])))


def quotes_are_proved(answer: str, sources: Sequence[str]) -> bool:
    """Whether each passage in quotation marks stands in one of the sources, word for word.

    Of fewer than three words nobody can tell a quote from a name.

    Example:
        >>> quotes_are_proved('It says "within 14 days".', ["Refunds come within 14 days."])
        True
        >>> quotes_are_proved('It says "within 41 days".', ["Refunds come within 14 days."])
        False
    """
    quotes = ["".join(found) for found in _QUOTED.findall(answer)]
    long = [one for one in quotes if len(one.split()) >= _FEWEST_QUOTED or _UNSPACED.search(one)]
    return all(any(locate_quote(text, quote) for text in sources) for quote in long)


def proposals(
    connection: Connection, namespace: str, *, question_ids: Iterable[int] | None = None
) -> list[Proposal]:
    """Return what people liked among the grounded answers of a namespace, by id.

    An answer counts if it was published as grounded, and at least one chunk is known that it
    provably quotes. Traffic of evaluations and playgrounds does not count.

    Args:
        connection: A transaction.
        namespace: Whose.
        question_ids: Only answers to these questions.
    """
    groups: dict[str, list[_Answer]] = defaultdict(list)
    liked = _liked(connection, namespace, question_ids)
    for ask in read_asks(connection, namespace, question_ids=liked, only_cited=True):
        if sources := _sources(ask):
            hashes = {text_hash for _, text_hash in sources}
            answer = _Answer(ask, sources, _votes(ask, sources))
            groups[derived_id_of(namespace, ask.question, hashes)].append(answer)
    made = (_proposal(derived_id, answers) for derived_id, answers in sorted(groups.items()))
    return [one for one in made if one is not None]


class _Answer(NamedTuple):
    ask: Ask
    sources: tuple[Source, ...]
    votes: list[Vote]


def _liked(
    connection: Connection, namespace: str, question_ids: Iterable[int] | None
) -> list[int]:
    """Return the questions of which somebody liked a grounded answer."""
    liked = (
        select(traces.c.question_id)
        .join(signals, signals.c.trace_id == traces.c.trace_id)
        .where(traces.c.namespace == namespace, signals.c.namespace == namespace)
        .where(traces.c.grounded, traces.c.status == "answered", traces.c.traffic.is_(None))
        .where(signals.c.target == ANSWER, signals.c.family == "judgement")
        .where(signals.c.polarity > 0, signals.c.retracted_at.is_(None))
        .where(signals.c.attached, signals.c.state.is_(None))
        .distinct()
    )
    if question_ids is None:
        return sorted(connection.scalars(liked))
    pages = batched(sorted(question_ids))
    among = (liked.where(traces.c.question_id.in_(page)) for page in pages)
    return sorted(found for of_page in among for found in connection.scalars(of_page))


def _sources(ask: Ask) -> tuple[Source, ...]:
    """Return what an answer rests on; nothing where it may not be served again."""
    if not ask.grounded or ask.status != "answered" or not (ask.answer or "").strip():
        return ()
    cited = {chunk.chunk_id: chunk.content_hash for chunk in ask.chunks if chunk.cited}
    return tuple(sorted(cited.items()))


def _proposal(derived_id: str, answers: Sequence[_Answer]) -> Proposal | None:
    liked = [one for one in answers if any(vote.good for vote in one.votes)]
    if not liked:
        return None
    ask, sources, _ = liked[-1]
    return Proposal(
        derived_id,
        ask.question_id,
        ask.question,
        ask.trace_id,
        str(ask.answer),
        sources,
        tuple(vote for one in answers for vote in one.votes),
    )


def _votes(ask: Ask, sources: Sequence[Source]) -> list[Vote]:
    """Return one vote of each person; who says both, says no.

    Judgements of the whole answer count, a correction as one against it, and what is said
    against a chunk that it quotes. What people did with it counts for nothing.
    """
    about = {ANSWER, *(chunk_id for chunk_id, _ in sources)}
    votes: dict[str, Vote] = {}
    for said in ask.said:
        against = said.is_against and said.family in ("judgement", "correction")
        good = said.polarity > 0 and said.family == "judgement" and said.target == ANSWER
        if said.target not in about or not (against or good):
            continue
        actor = ANONYMOUS if said.actor == f"trace:{ask.trace_id}" else said.actor
        before = votes.get(said.actor)
        vote = Vote(actor, not against, said.reviewer, said.received_at)
        if before is None or before.good or (against and said.reviewer):
            votes[said.actor] = vote
    return list(votes.values())
