"""The commands. Every failure is a clear message and a non-zero exit."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from langchain_core.documents import Document
from langchain_core.exceptions import ModelError
from rich.console import Console
from rich.text import Text

from langchain_feedback.cli.answering import Answered, answer, chat_model, make_graph
from langchain_feedback.cli.evidence import show_evidence
from langchain_feedback.cli.index import app as index
from langchain_feedback.cli.loop import app as loop
from langchain_feedback.cli.progress import reading_progress
from langchain_feedback.cli.rendering import show_answer, show_grades
from langchain_feedback.cli.serving import serve
from langchain_feedback.demo.flywheel_records import FlywheelSettings, Policy, Signal
from langchain_feedback.demo.handbook import golden_questions, handbook_documents, stop_words
from langchain_feedback.errors import LangChainFeedbackError, UnreadableFileError
from langchain_feedback.local.reading import read_folder
from langchain_feedback.local.splitting import split_sections
from langchain_feedback.local.tfidf import TfidfRetriever
from langchain_feedback.quotes.plain import plain_text

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(loop, name="loop")
app.add_typer(index, name="index")
app.command()(serve)
_UNANSWERABLE = "Do you sell gift cards?"

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def _lab_option(text: str, *names: str, **options: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="With --flywheel", **options)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Answers from your own documents, with quotes that are checked, or none."""
    if version:
        typer.echo(metadata.version("langchain-feedback"))
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def demo(  # noqa: PLR0917  each is an option
    as_json: Json = False,
    flywheel: Annotated[
        bool,
        typer.Option(
            "--flywheel", help="Rate the answers instead, and see what the ratings change."
        ),
    ] = False,
    signal: Annotated[
        Signal | None, _lab_option("What is rated; without it, the answer and what it cites.")
    ] = None,
    policy: Annotated[
        Policy | None, _lab_option("The classic rule (average), or the library's own (default).")
    ] = None,
    reviewer: Annotated[
        bool | None,
        _lab_option("Somebody pins what bad answers lack, each ten events.", "--reviewer"),
    ] = None,
    events: Annotated[
        int | None, _lab_option("How many answers are rated; without it, 100.", min=0)
    ] = None,
    plot: Annotated[
        Path | None, _lab_option("Draw it beside other rules into FILE.png (or .svg, .pdf).")
    ] = None,
    database: Annotated[
        Path | None, _lab_option("A new SQLite file to keep; without it, a temporary one.")
    ] = None,
) -> None:
    """Answer five questions from a handbook, and refuse a sixth: no key, no network."""
    options: dict[str, Any] = {
        "signal": signal,
        "policy": policy,
        "reviewer": reviewer,
        "events": events,
        "plot": plot,
        "database": database,
    }
    given = {name: value for name, value in options.items() if value is not None}
    with _failures_told():
        if flywheel:
            _run_flywheel(as_json=as_json, **given)
            return
        if given:
            msg = f"Only together with --flywheel: {', '.join(f'--{name}' for name in given)}"
            raise ValueError(msg)
    _answer_handbook(as_json=as_json)


def _run_flywheel(
    *, as_json: bool, plot: Path | None = None, database: Path | None = None, **settings: Any
) -> None:
    # The store's packages take half a second to load: `ask` does without them.
    from langchain_feedback.cli.flywheel import run_lab, show_run  # noqa: PLC0415

    run = run_lab(FlywheelSettings(**settings), plot=plot, database=database)
    if as_json:
        _print_json(run.as_json())
        return
    show_run(Console(), run)
    for name, path in (("plot", plot), ("database", database)):
        if path is not None:
            Console().print(Text(plain_text(f"The {name} is in {path}"), "dim"))


def _answer_handbook(*, as_json: bool) -> None:
    documents = handbook_documents()
    retriever = TfidfRetriever.from_documents(documents, k=4, stop_words=stop_words())
    graph = make_graph(retriever, documents, None)
    questions = [golden.question for golden in golden_questions()] + [_UNANSWERABLE]
    results = {question: answer(graph, question) for question in questions}
    answers = {golden.question: golden.evidence for golden in golden_questions()}
    if as_json:
        _print_json([{"question": q} | result.as_json() for q, result in results.items()])
        return
    console = Console()
    console.print(
        Text(f"A handbook of {len(documents)} chunks, {len(questions)} questions, no model.\n")
    )
    for question, result in results.items():
        show_answer(console, question, result)
        show_grades(console, result.state["documents"], result.state["grades"])
        if evidence := answers.get(question):
            show_evidence(console, evidence, result.state["grades"])
        console.print()
    console.print(
        Text(
            "Without a model, answers are passages picked by their words, and some are not to the "
            "point.\nYour own files: langchain-feedback ask QUESTION --docs FOLDER\n"
            "What ratings change: langchain-feedback demo --flywheel",
            "bold",
        )
    )


@app.command()
def ask(  # noqa: PLR0917  each is an option
    question: Annotated[str, typer.Argument(help="The question, in quotes.")],
    docs: Annotated[Path, typer.Option(help="A folder of .txt, .md, .html and .pdf files.")],
    model: Annotated[
        str | None,
        typer.Option(help="openai:NAME. Without it, sentences are quoted by their words alone."),
    ] = None,
    k: Annotated[int, typer.Option(min=1, help="How many chunks to look at.")] = 4,
    skip_errors: Annotated[
        bool, typer.Option(help="Go on without files that cannot be read.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Answer a question from a folder of files, with sources, or abstain."""
    with _failures_told():
        if not question.strip():
            msg = "There is no question. Put it in quotes after `ask`."
            raise ValueError(msg)
        chat = None if model is None else chat_model(model)
        chunks = _read_chunks(docs, skip_errors=skip_errors)
        retriever = TfidfRetriever.for_files(chunks, k=k)
        result: Answered = answer(make_graph(retriever, chunks, chat), question)
    if as_json:
        _print_json(result.as_json())
        return
    console = Console()
    show_answer(console, question, result)
    if chat is None:
        console.print(Text("  No model was asked: passages are picked by their words.", "dim"))


def _read_chunks(folder: Path, *, skip_errors: bool) -> list[Document]:
    errors = Console(stderr=True)
    with reading_progress(errors) as on_file:
        found = read_folder(folder, on_file=on_file, skip_errors=skip_errors)
        chunks = split_sections(found.sections)
    for problem in found.problems:
        errors.print(Text(plain_text(f"Skipped: {problem}"), "yellow"))
    return chunks


@contextmanager
def _failures_told() -> Iterator[None]:
    try:
        yield
    except UnreadableFileError as error:
        _fail(f"{error} (--skip-errors goes on without such files.)", 2)
    except (LangChainFeedbackError, ValueError) as error:
        _fail(str(error), 2)
    except ModelError as error:
        _fail(f"The model could not be asked: {type(error).__name__}: {error}", 1)


def _fail(message: str, code: int) -> None:
    Console(stderr=True).print(Text(plain_text(message), "red"))
    raise typer.Exit(code)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
