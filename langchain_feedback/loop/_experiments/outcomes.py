"""What each question of an experiment says of the two, and what the log says before it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection

from langchain_feedback.loop._experiments.sizes import Credit, Kind
from langchain_feedback.loop._experiments.tests_of import design_effect
from langchain_feedback.loop._triage.resting import asks_between
from langchain_feedback.ranking.interleave import arm_of
from langchain_feedback.store.asking import Ask, read_asks
from langchain_feedback.store.evidence import batched
from langchain_feedback.store.experiments import ExperimentRecord, read_teams
from langchain_feedback.store.schema import ANSWER

__all__ = ["arm_outcomes", "draft_outcomes", "rates_so_far", "success_of"]

_LOOKS_BACK = timedelta(days=28)
_LEAST_LOG = 100


def draft_outcomes(
    connection: Connection, namespace: str, record: ExperimentRecord, trace_ids: Sequence[str]
) -> Iterator[tuple[str, int]]:
    """Yield who asked, and 1 where `b` has more credit, -1 where `a` has, 0 else."""
    for page in batched(list(trace_ids)):
        teams = read_teams(connection, page)
        for ask in read_asks(connection, namespace, trace_ids=page):
            credited = _credited(ask, record.settings["credit"])
            yield ask.asker, _sign(credited, teams.get(ask.trace_id, {}))


def arm_outcomes(
    connection: Connection, namespace: str, record: ExperimentRecord, trace_ids: Sequence[str]
) -> Iterator[tuple[str, str, bool | None]]:
    """Yield who asked, which arm that was, and whether it was a success; None: nothing tells."""
    share, credit = record.settings["share"], record.settings["credit"]
    for page in batched(list(trace_ids)):
        for ask in read_asks(connection, namespace, trace_ids=page):
            arm = arm_of(record.experiment_id, ask.asker, share)
            yield ask.asker, arm, success_of(ask, credit)


def rates_so_far(
    connection: Connection, namespace: str, kind: Kind, credit: Credit, now: datetime
) -> dict[str, float]:
    """Return what the log says of `engaged`, `base_rate` and `design`: see `needed_questions`.

    Nothing where it holds too little. Of `design` it says something for `ab` only: that somebody
    opens many sources, or none, does not say which of two retrievers he prefers.
    """
    told: list[tuple[str, bool]] = []
    asks = 0
    for ask in asks_between(connection, namespace, now - _LOOKS_BACK, now):
        asks += 1
        if (success := success_of(ask, credit)) is not None:
            told.append((ask.asker, success))
    good = sum(success for _, success in told)
    if asks < _LEAST_LOG or not 0 < good < len(told):
        return {}
    rate = good / len(told)
    engaged = rate if credit == "clicks" else len(told) / asks
    known = {"engaged": engaged, "base_rate": rate}
    return known | ({"design": design_effect(told)} if kind == "ab" else {})


def success_of(ask: Ask, credit: Credit) -> bool | None:
    """Return whether an answer was a success, None where nothing tells.

    By `clicks`: whether a source was opened; that none was tells something, too. By `citations`:
    whether the answer quotes a source and was not found to be ungrounded; an abstention is no
    success; nothing tells where the citations are not known. By `ratings`: whether it was
    rated, and nobody rated it bad.
    """
    if credit == "clicks":
        return bool(_credited(ask, credit))
    if credit == "citations":
        if ask.status == "abstained":
            return False
        known = [chunk.cited for chunk in ask.prompt if chunk.cited is not None]
        return ask.grounded is not False and any(known) if known else None
    rated = [
        said.polarity
        for said in ask.said
        if said.family == "judgement" and said.target == ANSWER and said.polarity
    ]
    return min(rated) > 0 if rated else None


def _credited(ask: Ask, credit: Credit) -> set[str]:
    """Return the chunks that were opened, or that the answer provably quotes."""
    if credit == "citations":
        return {chunk.chunk_id for chunk in ask.last_search if chunk.cited}
    return {said.target for said in ask.said if said.signal == "source_click"}


def _sign(credited: set[str], teams: Mapping[str, str]) -> int:
    won = {team: sum(teams.get(one) == team for one in credited) for team in ("a", "b")}
    return (won["b"] > won["a"]) - (won["b"] < won["a"])
