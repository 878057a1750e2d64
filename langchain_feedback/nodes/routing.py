"""Where a graph goes after grading and after verification. Routers call nobody."""

from collections.abc import Callable
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig

from langchain_feedback.nodes._view import StateView
from langchain_feedback.nodes.keys import StateKeys, state_schema

__all__ = [
    "STEPS_TO_ANSWER",
    "STEPS_TO_REWRITE",
    "route_after_begin",
    "route_after_grading",
    "route_after_verification",
]

AfterBegin = Literal["retrieve", "rewrite_question"]
AfterGrading = Literal["generate", "rewrite_question", "abstain"]
AfterVerification = Literal["record_answer", "generate", "abstain"]

# Steps that the longest way to the end takes: generate, check, highlight or abstain,
# record (one less where one node verifies); and rewrite, retrieve, grade, abstain,
# record. The steps that LangGraph counts as remaining include the router's own.
STEPS_TO_ANSWER = 1 + 4
"""Steps that must remain for a router to ask for a draft."""
STEPS_TO_REWRITE = 1 + 5
"""Steps that must remain for a router to ask for a rewrite."""


def route_after_grading(
    *, max_rewrites: int = 1, keys: StateKeys | None = None
) -> Callable[[Any], AfterGrading]:
    """Make the router to `generate`, `rewrite_question` or `abstain`.

    It abstains when the budget of rewrites is spent, and when the recursion limit
    leaves too few steps for another attempt.

    Args:
        max_rewrites: How often a question may be rewritten, at least 0.
        keys: Your graph's names of the keys.

    Raises:
        ValueError: If `max_rewrites` is negative.

    Example:
        >>> route = route_after_grading(max_rewrites=1)
        >>> route({"kept": [], "rewrites": 0}), route({"kept": [], "rewrites": 1})
        ('rewrite_question', 'abstain')
    """
    keys = _checked(keys, max_rewrites=max_rewrites)

    def route(state: Any, config: RunnableConfig | None = None) -> AfterGrading:
        view = StateView(state, keys, config)
        if view.kept:
            return "generate" if view.remaining_steps >= STEPS_TO_ANSWER else "abstain"
        if view.get("reason") == "judge_failed":
            return "abstain"
        if view.get("rewrites") >= max_rewrites or view.remaining_steps < STEPS_TO_REWRITE:
            return "abstain"
        return "rewrite_question"

    # LangGraph takes the targets from here: one that is never chosen needs no node.
    returns = AfterGrading if max_rewrites else Literal["generate", "abstain"]
    return _annotated(route, "route_after_grading", keys, ["kept", "rewrites", "reason"], returns)


def route_after_begin(
    *, max_rewrites: int = 1, keys: StateKeys | None = None
) -> Callable[[Any], AfterBegin]:
    """Make the router to `retrieve`, or in a chat's later turns to `rewrite_question`.

    "And for laptops?" finds nothing by itself: a follow-up spends the first rewrite on
    being made to stand on its own.

    Args:
        max_rewrites: As in `route_after_grading`.
        keys: Your graph's names of the keys.

    Raises:
        ValueError: If `max_rewrites` is negative.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> route = route_after_begin(keys=StateKeys(messages="messages"))
        >>> turns = [HumanMessage("Refunds?"), AIMessage("14 days."), HumanMessage("And fees?")]
        >>> route({"messages": turns[:1]}), route({"messages": turns})
        ('retrieve', 'rewrite_question')
    """
    keys = _checked(keys, max_rewrites=max_rewrites)

    def route(state: Any) -> AfterBegin:
        follows = max_rewrites > 0 and StateView(state, keys).history
        return "rewrite_question" if follows else "retrieve"

    returns = AfterBegin if max_rewrites else Literal["retrieve"]
    return _annotated(route, "route_after_begin", keys, ["messages"], returns)


def route_after_verification(
    *, max_regenerations: int = 1, keys: StateKeys | None = None
) -> Callable[[Any], AfterVerification]:
    """Make the router to `record_answer`, `generate` or `abstain`.

    A draft that is not grounded is written again while the budget lasts. Where
    the judge failed it abstains at once: a second draft could not be checked either.
    A draft that abstains in its own words goes to `record_answer`, and one that only
    declines to `abstain`.

    Args:
        max_regenerations: How often a draft may be written again, at least 0.
        keys: Your graph's names of the keys.

    Raises:
        ValueError: If `max_regenerations` is negative.

    Example:
        >>> route = route_after_verification(max_regenerations=1)
        >>> route({"grounded": False, "generations": 1}), route({"grounded": True})
        ('generate', 'record_answer')
    """
    keys = _checked(keys, max_regenerations=max_regenerations)

    def route(state: Any, config: RunnableConfig | None = None) -> AfterVerification:
        view = StateView(state, keys, config)
        if view.get("grounded"):
            return "record_answer"
        if view.get("status") == "abstained":
            return "record_answer" if view.get("answer") else "abstain"
        spent = view.drafts > max_regenerations
        if spent or view.get("reason") == "judge_failed":
            return "abstain"
        return "generate" if view.remaining_steps >= STEPS_TO_ANSWER else "abstain"

    used = ["grounded", "generations", "verifications", "reason", "status", "answer"]
    return _annotated(route, "route_after_verification", keys, used, AfterVerification)


def _checked(keys: StateKeys | None, **budget: int) -> StateKeys:
    for name, value in budget.items():
        if value < 0:
            msg = f"{name} must not be negative, got {value!r}"
            raise ValueError(msg)
    return keys or StateKeys()


def _annotated(
    route: Callable[..., Any], name: str, keys: StateKeys, used: list[str], returns: Any
) -> Callable[[Any], Any]:
    """Let LangGraph read from the annotations what the router needs and where it leads."""
    schema = state_schema(f"{name}_state", keys, used, remaining_steps=True)
    route.__annotations__ = {"state": schema, "config": RunnableConfig, "return": returns}
    route.__name__ = route.__qualname__ = name
    return route
