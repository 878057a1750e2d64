"""`langchain-feedback loop train`, `evaluate`, `promote`, `rollback`, `shadow`: by hand."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_feedback.cli.loading import load
from langchain_feedback.cli.loop_running import Estimating
from langchain_feedback.cli.shared import (
    DATABASE,
    Actor,
    Database,
    Json,
    Namespace,
    name_of,
    opened,
    print_json,
    print_table,
    say,
    told,
)
from langchain_feedback.errors import UnknownRankerError

if TYPE_CHECKING:
    from langchain_feedback.loop.evaluation import EvalReport
    from langchain_feedback.store.feedback_store import FeedbackStore
    from langchain_feedback.store.rankers import Activation

__all__ = ["COMMANDS"]

_GATE = {"promote": 0, "reject": 1, "advice": 2}
"""What `evaluate --gate` ends with."""

_STYLES = {"promote": "bold green", "reject": "bold red", "advice": "bold yellow"}

Which = Annotated[str | None, typer.Argument(help="A ranker's id; without it, the newest.")]


def _train(
    database: Database = DATABASE,
    namespace: Namespace = "default",
    estimator: Estimating = None,
    as_json: Json = False,
) -> None:
    """Train a ranker from what reviewers decided; it orders nothing until it is promoted."""
    from langchain_feedback.loop.training import train_ranker  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        made = None if estimator is None else load(estimator, "--estimator")
        record = train_ranker(store, estimator=made)
    if as_json:
        print_json({name: value for name, value in asdict(record).items() if name != "artifact"})
        return
    say(f"Ranker {record.ranker_id} has learned from {record.groups} questions.", "bold")
    say("Next: langchain-feedback loop evaluate", "dim")


def _evaluate(  # noqa: PLR0917  each is an option
    ranker: Which = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="What it is compared with: active, base, or a ranker's id. Without it active; "
            "for the active one itself, base."
        ),
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="Of the cases; without it, the newest.")
    ] = None,
    gate: Annotated[
        bool,
        typer.Option("--gate", help="End with 1 if it is rejected, 2 if cases are too few."),
    ] = False,
    estimator: Estimating = None,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Try a ranker on the frozen cases, against what orders the pools now."""
    from langchain_feedback.loop.evaluation import evaluate  # noqa: PLC0415
    from langchain_feedback.loop.job import loader_of  # noqa: PLC0415
    from langchain_feedback.loop.promotion import active_ranker  # noqa: PLC0415

    with told(), opened(database, namespace) as store:
        ranker = _named(store, ranker)
        active = active_ranker(store)
        if baseline is None:
            # Against itself, the active one would be rejected each time.
            baseline = "base" if active and active.ranker_id == ranker else "active"
        report = evaluate(
            store,
            ranker,
            baseline=None if baseline == "base" else baseline,
            version=version,
            load=None if estimator is None else loader_of(load(estimator, "--estimator")),
        )
    if as_json:
        print_json(asdict(report))
    else:
        _show(report)
    if gate and (code := _GATE[report.verdict]):
        raise typer.Exit(code)


def _promote(  # noqa: PLR0917  each is an option
    to: Annotated[
        str | None,
        typer.Option(
            help="Which ranker: its id, how that begins, or its number; without it, the newest."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Although it did not pass the gate; that is kept.")
    ] = False,
    by: Actor = "",
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Let a ranker order what people get, if it earned that."""
    from langchain_feedback.loop.promotion import promote  # noqa: PLC0415

    _acted(
        lambda store: promote(store, _named(store, to), actor=name_of(by), force=force),
        database, namespace, as_json,
    )  # fmt: skip


def _rollback(
    by: Actor = "",
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Go back to what ordered the pools before; no schedule promotes that ranker again."""
    from langchain_feedback.loop.promotion import rollback  # noqa: PLC0415

    _acted(lambda store: rollback(store, actor=name_of(by)), database, namespace, as_json)


def _shadow(  # noqa: PLR0917  each is an option
    to: Annotated[
        str | None,
        typer.Option(
            help="Which ranker: its id, how that begins, or its number; without it, the newest."
        ),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="None any more.")] = False,
    by: Actor = "",
    database: Database = DATABASE,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Let a ranker order the pools unseen, to compare it with what people get."""
    from langchain_feedback.loop.promotion import shadow  # noqa: PLC0415

    def act(store: "FeedbackStore") -> "Activation":
        return shadow(store, None if off else _named(store, to), actor=name_of(by))

    _acted(act, database, namespace, as_json)


def _acted(
    act: "Callable[[FeedbackStore], Activation]", database: str, namespace: str, as_json: bool
) -> None:
    """Do it, and say what counts now."""
    with told(), opened(database, namespace) as store:
        done = act(store)
        needed = _needs(store, done.ranker_id)
    if as_json:
        print_json(asdict(done))
        return
    if done.role == "shadow":
        named = f"Ranker {done.ranker_id} ranks" if done.ranker_id else "No ranker ranks"
        say(f"{named} in the shadow now.", "bold")
        return
    named = f"Ranker {done.ranker_id} orders" if done.ranker_id else "No ranker orders"
    say(f"{named} the pools now. Retrievers follow within 30 seconds.", "bold green")
    if needed:
        names = ", ".join(needed)
        words = f"It needs features of your own: {names}. A retriever that lacks them in"
        say(f"{words} ranker_features={{...}} keeps its order without it.", "yellow")
    if done.action == "promote":
        say("To take it back: langchain-feedback loop rollback", "dim")


def _show(report: "EvalReport") -> None:
    against = f"ranker {report.baseline_id}" if report.baseline_id else "the base's own order"
    words = f"Ranker {report.ranker_id} against {against}: {report.verdict}"
    say(words, _STYLES[report.verdict])
    for reason in report.reasons:
        say(f"  {reason}")
    say("")
    rows: list[tuple[Any, ...]] = [
        (one.name, one.n, f"{one.weight:.0%}" if one.weight else "", f"{one.baseline_score:.3f}",
         f"{one.score:.3f}", f"{100 * one.gain:+.1f}", "worse" if one.worse else "")
        for one in report.strata
    ]  # fmt: skip
    head = ("questions", "cases", "of the traffic", "baseline", "ranker", "points", "")
    print_table(head, rows, "There are no strata.")
    say("")
    rows = [
        (name, f"{before:.3f}", f"{now:.3f}") for name, (now, before) in report.metrics.items()
    ]
    print_table(("measure", "baseline", "ranker"), rows, "Nothing was measured.")
    if report.worst_question:
        words = f"Worst: {report.worst_question} (-{100 * report.worst_drop:.1f} points)"
        say(words, "yellow")
    if report.set_aside:
        words = f"{len(report.set_aside)} cases are set aside: their chunks have other texts now."
        say(words, "dim")


def _named(store: "FeedbackStore", given: str | None) -> str:
    """Return the id of a ranker: the newest, one by its number, or by how its id begins."""
    from langchain_feedback.store.rankers import read_rankers  # noqa: PLC0415
    from langchain_feedback.store.transactions import reading  # noqa: PLC0415

    with reading(store) as connection:
        found = [one.ranker_id for one in read_rankers(connection, store.namespace)]
    if not found:
        msg = "There is no ranker yet. Train one: langchain-feedback loop train"
        raise UnknownRankerError(msg)
    if given is None:
        return found[0]
    by_number = {str(number): one for number, one in enumerate(reversed(found), start=1)}
    alike = [one for one in found if given and one.startswith(given)]
    if given in found or (number := given.removeprefix("#")) not in by_number:
        return alike[0] if len(alike) == 1 else given
    return by_number[number]


def _needs(store: "FeedbackStore", ranker_id: str | None) -> list[str]:
    """Return the features of one's own that a ranker was trained with."""
    from langchain_feedback.ranking.features import FEATURES  # noqa: PLC0415
    from langchain_feedback.store.rankers import read_ranker  # noqa: PLC0415
    from langchain_feedback.store.transactions import reading  # noqa: PLC0415

    if ranker_id is None:
        return []
    with reading(store) as connection:
        record = read_ranker(connection, store.namespace, ranker_id)
    if record is None or record.kind != "linear":
        return []
    return [str(name) for name in json.loads(record.artifact)["features"][len(FEATURES) :]]


COMMANDS: dict[str, Callable[..., None]] = {
    "train": _train,
    "evaluate": _evaluate,
    "promote": _promote,
    "rollback": _rollback,
    "shadow": _shadow,
}
"""By name."""
