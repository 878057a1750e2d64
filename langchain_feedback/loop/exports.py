"""What reviewers decided, in the forms that other tools read.

| `to` | what is written | `needs_review` |
| --- | --- | --- |
| `jsonl` | a line for each item: question, whole pool, verdict, right and wrong chunks | a field |
| `pairs` | anchor, positive: sentence-transformers | refused |
| `triplets` | anchor, positive, negative: sentence-transformers | refused |
| `lists` | query, docs, labels: `LambdaLoss` and other losses over lists | refused |
| `beir` | a folder: `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv` | in a query's metadata |
| `langsmith` | examples of a dataset, sent | in an example's metadata, and its split |
| `argilla` | a folder for `rg.Dataset.from_disk`, with `records.json` | in a record's metadata |

What nobody has reviewed is no label. It is exported only when asked for, marked with
`needs_review`, and not at all where a mark has no place: a trainer reads every column.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from uuid import UUID

from langchain_feedback.loop._exporting import training
from langchain_feedback.loop._exporting.argilla import argilla_files
from langchain_feedback.loop._exporting.beir import beir_files
from langchain_feedback.loop._exporting.files import as_line, write_file, write_folder
from langchain_feedback.loop._exporting.labels import Labeled, labeled
from langchain_feedback.loop._exporting.langsmith import send_examples
from langchain_feedback.loop._exporting.training import Negatives
from langchain_feedback.loop.labels import reviewed_questions

if TYPE_CHECKING:
    from langsmith import Client

    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Exported", "Format", "Negatives", "export"]

Format = Literal["jsonl", "pairs", "triplets", "lists", "beir", "langsmith", "argilla"]

_TRAINING = ("pairs", "triplets", "lists")


@dataclass(frozen=True)
class Exported:
    """What an export wrote or sent."""

    rows: int
    """Lines, queries, records or examples."""
    questions: int
    """How many reviewed questions they come from."""
    left_out: int
    """Reviewed questions of which this form can say nothing, such as one without a right chunk."""
    files: tuple[Path, ...] = ()
    created: int = 0
    """Examples that LangSmith did not have."""
    updated: int = 0
    """Examples that it had otherwise."""


def export(
    store: "FeedbackStore",
    to: Format,
    path: Path | str | None = None,
    *,
    include_unreviewed: bool = False,
    negatives: Negatives = "pool",
    overwrite: bool = False,
    client: "Client | None" = None,
    dataset: str | UUID | None = None,
) -> Exported:
    """Write what reviewers decided into a file, a folder or a LangSmith dataset.

    Args:
        store: Whose questions.
        to: The form; see the table above.
        path: The file or folder; `langsmith` has none. It appears when it is complete.
        include_unreviewed: Whether candidates without a verdict go along, marked.
        negatives: Of `triplets`: whether the rest of the pool counts as negative after what a
            reviewer rejected, or only the latter. Nobody has rejected the rest, and a chunk that
            is right as well may be in it; a text that equals a right one never counts.
        overwrite: Whether what is at `path` may be replaced.
        client: LangSmith's; without it one is made from the environment.
        dataset: LangSmith's, by id or name. One of that name is made if there is none.

    Raises:
        ValueError: If an argument does not fit the form, or `path` is taken.
        StoreError: If the store cannot be read or the file not written.
        LangSmithError: If LangSmith cannot be reached or refuses; what arrived before stays,
            and exporting again goes on.
    """
    _check(to, path, include_unreviewed=include_unreviewed, dataset=dataset)
    reviewed = reviewed_questions(store, include_unreviewed=include_unreviewed)
    questions = labeled(store, reviewed)
    if to == "langsmith":
        return _to_langsmith(client, dataset or "", store.namespace, questions)
    target = Path(path or "")
    if to == "beir":
        files, rows = beir_files(questions)
        written = write_folder(target, files, overwrite=overwrite)
        asked = len({one.of.question_id or one.of.item_id for one in questions})
        return Exported(rows, rows, asked - rows, written)
    if to == "argilla":
        files = argilla_files(questions, name=target.name)
        written = write_folder(target, files, overwrite=overwrite)
        return Exported(len(questions), len(questions), 0, written)
    return _to_lines(target, questions, _rows_of(to, negatives), overwrite=overwrite)


def _check(
    to: str, path: Path | str | None, *, include_unreviewed: bool, dataset: str | UUID | None
) -> None:
    msg = ""
    if to not in get_args(Format):
        msg = f"to must be one of {', '.join(get_args(Format))}; got {to!r}"
    elif include_unreviewed and to in _TRAINING:
        msg = (
            f"{to} have no place for needs_review, and what nobody reviewed is nothing to train "
            "on. Export to jsonl, beir, langsmith or argilla to see what is unreviewed."
        )
    elif to == "langsmith" and (path is not None or not dataset):
        msg = "langsmith needs a dataset, by name or id, and no path."
    elif to != "langsmith" and (path is None or dataset):
        msg = f"{to} needs a path, and no dataset."
    if msg:
        raise ValueError(msg)


def _to_langsmith(
    client: "Client | None", dataset: str | UUID, namespace: str, questions: Sequence[Labeled]
) -> Exported:
    if client is None:
        from langsmith import Client  # noqa: PLC0415  half a second that other forms do not need

        client = Client(auto_batch_tracing=False)
    done = send_examples(client, dataset, namespace, questions)
    number = len(questions)
    return Exported(number, number, 0, created=done["created"], updated=done["updated"])


def _rows_of(to: str, negatives: Negatives) -> Callable[[Labeled], Iterator[dict[str, Any]]]:
    known: dict[str, Callable[[Labeled], Iterator[dict[str, Any]]]] = {
        "pairs": training.pairs,
        "triplets": partial(training.triplets, negatives=negatives),
        "lists": training.lists,
    }
    return known.get(to, _whole)


def _to_lines(
    path: Path,
    questions: Sequence[Labeled],
    rows_of: Callable[[Labeled], Iterable[dict[str, Any]]],
    *,
    overwrite: bool,
) -> Exported:
    rows = [[as_line(row) for row in rows_of(question)] for question in questions]
    used = sum(bool(some) for some in rows)
    files = write_file(path, (line for some in rows for line in some), overwrite=overwrite)
    return Exported(sum(map(len, rows)), used, len(questions) - used, files)


def _whole(question: Labeled) -> Iterator[dict[str, Any]]:
    """Yield all that is known; right chunks that were not in the pool come with their text."""
    known = {chunk.chunk_id for chunk in question.of.pool}
    found = [
        {"chunk_id": one.chunk_id, "content_hash": one.content_hash, "text": one.text}
        | {"source": one.source, "heading": one.heading}
        for one in question.passages
        if one.chunk_id not in known
    ]
    yield _plain(asdict(question.of)) | {"found": found}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.isoformat() if isinstance(value, datetime) else value
