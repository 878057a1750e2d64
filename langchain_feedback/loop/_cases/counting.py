"""Which frozen cases count in an evaluation, and why the others do not."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from langchain_feedback.errors import EvaluationError
from langchain_feedback.loop._gating.strata import FAILING
from langchain_feedback.store.eval_records import EvalCase

__all__ = ["Counted", "counted_of"]


@dataclass(frozen=True)
class Counted:
    """What a ranker is tried on."""

    cases: Sequence[EvalCase]
    left_out: Mapping[str, Sequence[str]]
    """Ids of the others, by the field of `EvalReport` that lists them."""

    @property
    def words(self) -> tuple[str, ...]:
        """Sentences on what is left out although nothing was changed or learned."""
        lost, more = len(self.left_out["out_of_reach"]), len(self.left_out["surplus"])
        found = []
        if lost:
            found.append(
                f"{_cases(lost)} did not count: the right chunk is not in the pool, and no order "
                "brings it up."
            )
        if more:
            found.append(
                f"{_cases(more, 'failing ')} did not count: half must be ordinary traffic."
            )
        return tuple(found)


def counted_of(frozen: Sequence[EvalCase], known: Collection[str]) -> Counted:
    """Return the cases that can tell two orders apart, of which at most half are failing ones.

    Reviewers see failures, so that there are more of those than of ordinary questions. Which
    ones count is decided by a digest: the same ones while nothing else is frozen.

    Args:
        frozen: A set.
        known: The ids of what one of the two learned from.

    Raises:
        EvaluationError: If none is left, or all that are left are failing questions.
    """
    changed = [case for case in frozen if case.changed]
    whole = [case for case in frozen if not case.changed and case.case_id not in known]
    reached = [case for case in whole if case.right & {chunk.name for chunk in case.pool}]
    ordinary = sum(case.stratum != FAILING for case in reached)
    _check(len(frozen), len(reached), ordinary)
    failing = sorted((case for case in reached if case.stratum == FAILING), key=_chance)
    surplus = {case.case_id for case in failing[ordinary:]}
    in_reach = {case.case_id for case in reached}
    return Counted(
        [case for case in reached if case.case_id not in surplus],
        {
            "set_aside": [case.case_id for case in changed],
            "known": [case.case_id for case in frozen if case.case_id in known],
            "out_of_reach": [case.case_id for case in whole if case.case_id not in in_reach],
            "surplus": [case.case_id for case in reached if case.case_id in surplus],
        },
    )


def _check(frozen: int, reached: int, ordinary: int) -> None:
    if not reached:
        msg = (
            f"There is no case to try a ranker on ({frozen} are frozen, and none of them counts). "
            "Freeze some: langchain-feedback loop run --step freeze"
        )
        raise EvaluationError(msg)
    if not ordinary:
        msg = (
            f"All {reached} cases are failing questions. On failures alone any shuffle gains: "
            "some must be ordinary traffic. Review questions that mining drew by chance, or "
            "freeze what people credited: langchain-feedback loop run --step freeze"
        )
        raise EvaluationError(msg)


def _chance(case: EvalCase) -> str:
    return hashlib.sha256(f"count:{case.key}".encode()).hexdigest()


def _cases(count: int, kind: str = "") -> str:
    return f"{count} {kind}{'case' if count == 1 else 'cases'}"
