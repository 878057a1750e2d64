"""The week of the feedback loop as a graph, for a cron of the server: see `run_loop`.

By environment: `LANGCHAIN_FEEDBACK_DATABASE` names the store, `LANGCHAIN_FEEDBACK_NAMESPACE` whose
feedback it is, `LANGCHAIN_FEEDBACK_OWNERS` a file of who owns which document, and
`LANGCHAIN_FEEDBACK_OUTBOX` the folder for what they are sent as files.
`LANGCHAIN_FEEDBACK_AUTO_PROMOTE=1` lets a ranker that passes the gate become active; who may
start a run over HTTP decides nothing of that.
"""

import os
from pathlib import Path
from typing import Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from graphs.defaults import default_store
from langchain_feedback.errors import LangChainFeedbackError, LoopBusyError
from langchain_feedback.loop.digest import run_as_markdown
from langchain_feedback.loop.job import STEPS, LoopReport, run_loop
from langchain_feedback.loop.owners import Owners


class Asked(TypedDict, total=False):
    """What a run is asked for."""

    steps: list[str]
    """Only these; without it, all."""


class Done(TypedDict):
    """What a run did."""

    state: str
    """`done`, or `busy` where another process does it already."""
    steps: list[dict[str, Any]]
    """What each step did: its name, state, words, facts and seconds."""
    report: str
    """The same as Markdown, without the texts of questions."""


class _State(Asked, Done, total=False):
    pass


def run(state: Asked) -> Done:
    """Do what a week needs.

    Raises:
        LangChainFeedbackError: If there is no such step, or one failed, so that the server shows
            the run as failed; the other steps are done.
    """
    steps = state.get("steps") or list(STEPS)
    if not isinstance(steps, list | tuple) or not all(isinstance(step, str) for step in steps):
        msg = f'steps must be a list of names, such as ["derive"]; got {steps!r}'
        raise LangChainFeedbackError(msg)
    try:
        report = _run(steps)
    except LoopBusyError as busy:
        return {"state": "busy", "steps": [], "report": str(busy)}
    except ValueError as error:
        raise LangChainFeedbackError(str(error)) from error
    if report.failed:
        said = " ".join(f"{step.name}: {step.words}" for step in report.failed)
        raise LangChainFeedbackError(said)
    taken = report.as_json()["steps"]
    return {"state": report.state, "steps": taken, "report": run_as_markdown(report)}


def _run(steps: Any) -> LoopReport:
    store = default_store()
    if store is None:
        msg = "There is no feedback store to work on: set LANGCHAIN_FEEDBACK_DATABASE."
        raise LangChainFeedbackError(msg)
    owners, outbox = (
        os.environ.get(f"LANGCHAIN_FEEDBACK_{name}") for name in ("OWNERS", "OUTBOX")
    )
    return run_loop(
        store,
        auto_promote=os.environ.get("LANGCHAIN_FEEDBACK_AUTO_PROMOTE") == "1",
        owners=Owners.from_toml(owners) if owners else None,
        outbox=Path(outbox) if outbox else None,
        steps=steps,
    )


_builder = StateGraph(_State, input_schema=Asked, output_schema=Done)
_builder.add_node("run", run)
_builder.add_edge(START, "run")
_builder.add_edge("run", END)
graph = _builder.compile(name="weekly_loop")
