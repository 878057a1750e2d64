"""Count how often a first stage agrees with the model, before it may decide."""

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from langchain_feedback.judges.verdict import Verdict

__all__ = ["Agreement", "agreement"]

_DECIDED = (Verdict.YES, Verdict.NO)


class Agreement(TypedDict):
    """What a first stage said in shadow mode, against the model's verdicts."""

    seen: int
    """Outputs with a first stage in shadow mode."""
    decided: int
    """Of these, where it said `yes` or `no`: the calls that it could have saved."""
    right: int
    """Of the decided, where the model said the same."""
    wrong: int
    """Of the decided, where the model said the opposite; the others got no verdict of it."""
    wrong_no: int
    """Of the wrong, where the model said `yes`: relevant chunks, or good answers, lost."""
    model_yes: int
    """Of the seen, where the model said `yes`: `wrong_no / model_yes` would be lost."""
    failed: int
    """Of the seen, where the first stage failed."""


def agreement(records: Iterable[Mapping[str, Any]]) -> Agreement:
    """Count over grades, or over results of a `StagedChecker`, that shadow mode recorded.

    Records without a first stage, or where it was not in shadow mode, are left out:
    there the model was not asked about what the first stage decided.

    Args:
        records: Dicts as in a graph's `grades`, of as many outputs as you have.

    Example:
        >>> said = {"verdict": "no", "reason": "", "error": None, "shadow": True}
        >>> grade = {"chunk_id": "a", "reason": "", "error": None, "first_stage": said}
        >>> outputs = [{"grades": [{**grade, "verdict": "no"}, {**grade, "verdict": "yes"}]}]
        >>> counts = agreement(grade for output in outputs for grade in output["grades"])
        >>> counts["decided"], counts["right"], counts["wrong"]
        (2, 1, 1)
    """
    counts = Agreement(seen=0, decided=0, right=0, wrong=0, wrong_no=0, model_yes=0, failed=0)
    for record in records:
        said = record.get("first_stage")
        if not said or not said["shadow"]:
            continue
        first, model = said["verdict"], record["verdict"]
        opposite = first in _DECIDED and model in _DECIDED and first != model
        counts["seen"] += 1
        counts["decided"] += first in _DECIDED
        counts["right"] += first in _DECIDED and first == model
        counts["wrong"] += opposite
        counts["wrong_no"] += opposite and first == Verdict.NO
        counts["model_yes"] += model == Verdict.YES
        counts["failed"] += said["error"] is not None
    return counts
