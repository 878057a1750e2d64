"""The review queue in the terminal: one item after the other, a letter for each verdict."""

from collections.abc import Mapping
from typing import Any, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from langchain_feedback.errors import ReviewError
from langchain_feedback.loop.review import ReviewItem, ReviewQueue, Verdict
from langchain_feedback.quotes.plain import plain_text

__all__ = ["work_through"]

_HELP = (
    "1 the suspect is wrong, 2 it is right, 3 unclear; then the numbers of the chunks that answer "
    "the question, or n for none exists, and =TEXT for what would be right. s skip, u undo, "
    "q quit. Example: 1 2 4 =It takes 30 days."
)
_FOLD_BACK = (
    "1 serve this answer again, 2 never, 3 unclear; =TEXT for what would be right. s skip, "
    "u undo, q quit."
)
_BURST = "1 drop these signals, 2 keep them, 3 unclear. s skip, u undo, q quit."
_HELPS = {"burst": _BURST, "foldback": _FOLD_BACK}
_KINDS = {"burst": "burst", "foldback": "an answer to serve again"}
_VERDICTS: Mapping[str, Verdict] = {"1": "confirm", "2": "reject", "3": "unclear"}
_LONGEST = 600


def work_through(queue: ReviewQueue, reviewer: str, console: Console) -> None:
    """Show items and take verdicts until nothing is left, or `q`, or the end of the input."""
    while (item := queue.claim(reviewer)) is not None:
        _show(console, item)
        if _answered(queue, item, reviewer, console) == "quit":
            break
    else:
        console.print(Text("Nothing is left in the queue.", "bold green"))
    mine = [one for one in queue.progress().reviewers if one.name == reviewer]
    decided = mine[0].decided if mine else 0
    console.print(Text(f"{reviewer}: {decided} decided.", "dim"))


def _answered(
    queue: ReviewQueue, item: ReviewItem, reviewer: str, console: Console
) -> Literal["next", "quit"]:
    """Take one answer; what cannot be read is asked for again."""
    while True:
        try:
            given = typer.prompt("Verdict (? helps)").strip()
        except typer.Abort:
            return "quit"
        try:
            if given == "q":
                return "quit"
            if given == "?":
                console.print(Text(_HELPS.get(item.kind, _HELP), "dim"))
                continue
            if given == "s":
                queue.skip(item)
            elif given == "u":
                undone = queue.undo(reviewer)
                words = f"Taken back: {undone.question}" if undone else "There is nothing to undo."
                console.print(Text(plain_text(words), "yellow"))
                if undone is None:
                    continue
            else:
                _decide(queue, item, given, console)
        except (ReviewError, ValueError) as error:
            console.print(Text(plain_text(str(error)), "red"))
            if isinstance(error, ReviewError):
                return "next"
            continue
        return "next"


def _decide(queue: ReviewQueue, item: ReviewItem, given: str, console: Console) -> None:
    marks, _, correction = given.partition("=")
    first, *rest = marks.split() or [""]
    if first not in _VERDICTS:
        msg = f"Begin with 1, 2 or 3; ? helps. Got {given!r}"
        raise ValueError(msg)
    pool = item.snapshot.get("chunks") or []
    numbers = [mark for mark in rest if mark != "n"]
    if wrong := [
        mark for mark in numbers if not mark.isdecimal() or not 0 < int(mark) <= len(pool)
    ]:
        msg = f"There is no chunk {wrong[0]!r}: 1 to {len(pool)}, or n."
        raise ValueError(msg)
    done = queue.decide(
        item,
        _VERDICTS[first],
        right_chunks=[pool[int(mark) - 1]["chunk_id"] for mark in numbers],
        none_exists="n" in rest,
        correction=correction.strip() or None,
    )
    did = [f"{len(done.pins)} pinned"] if done.pins else []
    did += [f"{len(done.owner_items)} for the owner"] if done.owner_items else []
    if (item.kind, first, done.state) == ("foldback", "1", "decided"):
        did += ["serves when `langchain-feedback index foldback run` has written it"]
    words = ", ".join(did) or (
        "kept" if done.state == "decided" else "kept; another one looks too"
    )
    console.print(Text(f"{_VERDICTS[first]}: {words}", "green"))


def _show(console: Console, item: ReviewItem) -> None:
    seen = item.snapshot
    body: list[RenderableType] = [Text(plain_text(seen.get("answer") or "No answer."))]
    body += [Text(plain_text(f"· {line}"), "dim") for line in seen.get("why") or ()]
    for said in seen.get("said") or ():
        words = said.get("comment") or said.get("correction")
        if words:
            body.append(Text(plain_text(f"“{words}”"), "yellow"))
    for number, chunk in enumerate(seen.get("chunks") or (), 1):
        body.append(_chunk(number, chunk, is_guess=chunk["chunk_id"] == item.guess))
    kind = _KINDS.get(item.kind) or (item.failure_class or "").replace("_", " ")
    console.print(
        Panel(
            Group(*body),
            title=Text(plain_text(item.question), "bold"),
            title_align="left",
            subtitle=Text(kind, "dim"),
            border_style="cyan",
        )
    )


def _chunk(number: int, chunk: Mapping[str, Any], *, is_guess: bool) -> Text:
    line = Text(f"\n{number:>2} ", "bold red" if is_guess else "bold")
    facts = [str(chunk.get("source") or chunk["chunk_id"])]
    facts += ["suspect"] if is_guess else []
    facts += ["cited"] if chunk.get("cited") else []
    facts += [f"graded {chunk['grade']}"] if chunk.get("grade") else []
    line.append(plain_text(" · ".join(facts)), "cyan")
    line.append(plain_text(f"\n   {str(chunk.get('text') or '')[:_LONGEST]}"))
    return line
