"""What a person sees in the terminal. Text of documents is never read as markup."""

from collections.abc import Iterator
from typing import Any

from langchain_core.documents import Document
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from langchain_feedback.cli.answering import Answered
from langchain_feedback.documents import chunk_key, source_of
from langchain_feedback.quotes.plain import plain_text
from langchain_feedback.quotes.render import NOT_FOUND, to_terminal

__all__ = ["show_answer", "show_grades"]

_MARKS = {"yes": ("kept", "green"), "no": ("dropped", "red"), "unknown": ("kept?", "yellow")}
_CONTEXT = 60
_REASONS = {
    "no_documents": "nothing was found",
    "none_relevant": "none of what was found answers the question",
    "not_grounded": "the documents do not support an answer",
    "empty_answer": "the documents hold no answer",
    "judge_failed": "the answer could not be checked",
    "step_limit": "the run had no steps left",
}


def show_answer(console: Console, question: str, answered: Answered) -> None:
    """Print a question, its answer, and the passages that the answer rests on."""
    state = answered.state
    abstained = state["status"] == "abstained"
    body: list[RenderableType] = [_text(state["answer"], "" if abstained else "bold")]
    if abstained:
        reason = _REASONS.get(state["reason"], state["reason"])
        body.append(_text(f"\nabstained: {reason}", "yellow"))
    else:
        texts = {chunk_key(document): document.page_content for document in state["documents"]}
        body.extend(_sources(state["citations"], texts))
    style = "yellow" if abstained else "green"
    title = _text(question, "bold")
    console.print(Panel(Group(*body), title=title, title_align="left", border_style=style))
    kept = sum(grade["verdict"] != "no" for grade in state["grades"])
    console.print(
        _text(
            f"  {kept} of {len(state['documents'])} chunks kept · "
            f"{answered.model_calls} model calls · trace {state['trace_id']}",
            "dim",
        ),
        no_wrap=True,
        overflow="ellipsis",
    )


def show_grades(console: Console, documents: list[Document], grades: list[dict[str, Any]]) -> None:
    """Print each retrieved chunk with its grade."""
    verdicts = {grade["chunk_id"]: grade["verdict"] for grade in grades}
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(width=7, no_wrap=True)
    table.add_column(ratio=2, no_wrap=True, overflow="ellipsis")
    table.add_column(ratio=3, no_wrap=True, overflow="ellipsis")
    for document in documents:
        mark, style = _MARKS[verdicts.get(chunk_key(document), "unknown")]
        text = " ".join(document.page_content.split())
        table.add_row(_text(mark, style), _text(source_of(document), "cyan"), _text(text, "dim"))
    console.print(Padding(table, (0, 2)))


def _sources(citations: list[dict[str, Any]], texts: dict[str, str]) -> Iterator[RenderableType]:
    if not citations:
        yield _text("\nno passage could be quoted", "yellow")
    for number, citation in enumerate(citations, 1):
        yield _text(f"\n[{number}] {citation['source']}", "cyan")
        if not citation["verified"]:
            yield _text(f"    {NOT_FOUND}: {citation['quote']}", "yellow")
            continue
        text = texts.get(citation["chunk_id"], citation["quote"])
        yield Padding(_passage(citation, text), (0, 0, 0, 4))


def _passage(citation: dict[str, Any], text: str) -> Text:
    """Show the quoted passage in a little of its context."""
    chunk_id = citation["chunk_id"]
    pieces = to_terminal(text, [citation], chunk_id=chunk_id, context=_CONTEXT, labels=False)
    return Text.assemble(*((part, "bold green" if marked else "dim") for part, marked in pieces))


def _text(text: str, style: str = "") -> Text:
    return Text(plain_text(text), style=style)
