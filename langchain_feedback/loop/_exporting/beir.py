"""Reviewed questions as a test collection in BEIR's files.

The ids are those of the index, so that a run of any retriever can be judged. Readers of qrels
split lines at white space, so where an id holds some it is percent-encoded.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from langchain_feedback.loop._exporting.files import as_line
from langchain_feedback.loop._exporting.labels import Labeled, Passage

__all__ = ["beir_files", "beir_id"]

_UNSAFE = re.compile(r"[\s\x00-\x20\x7f%]")
_HEADER = "query-id\tcorpus-id\tscore\n"


def beir_id(chunk_id: str) -> str:
    """Return a chunk's id as it stands in the files; `urllib.parse.unquote` brings it back.

    Example:
        >>> beir_id("faq.md#3"), beir_id("my faq.md#3")
        ('faq.md#3', 'my%20faq.md#3')
    """
    return _UNSAFE.sub(lambda match: quote(match[0]), chunk_id)


def beir_files(questions: Sequence[Labeled]) -> tuple[dict[str, Iterable[str]], int]:
    """Return the files and how many questions are in them.

    Those without a right chunk are left out: no retriever could find one. Those that still
    need a review are queries, marked as such, without judgements. Of a chunk whose text has
    changed between reviews the newest text counts, and judgements on another one do not.
    """
    corpus = _corpus(questions)
    judged: dict[str, dict[str, int]] = {}
    queries: dict[str, tuple[str, bool]] = {}
    for question in questions:
        query_id, scores = _query_id(question), _scores(question, corpus)
        if question.of.needs_review:
            queries.setdefault(query_id, (question.of.question, True))
        elif 1 in scores.values():
            queries[query_id] = (question.of.question, False)
            before = judged.setdefault(query_id, {})
            before |= {key: max(score, before.get(key, 0)) for key, score in scores.items()}
    files: dict[str, Iterable[str]] = {
        "corpus.jsonl": [_document(passage) for passage in corpus.values()],
        "queries.jsonl": [_query(query_id, *known) for query_id, known in queries.items()],
        "qrels/test.tsv": [_HEADER, *_judgements(judged)],
    }
    return files, len(queries)


def _query_id(question: Labeled) -> str:
    """Return the id under which all reviews of a question meet."""
    number = question.of.question_id
    return beir_id(question.of.item_id) if number is None else f"q{number}"


def _corpus(questions: Sequence[Labeled]) -> dict[str, Passage]:
    """Return all passages by id: of each the one that was reviewed last."""
    by_age = sorted(questions, key=lambda one: (not one.of.needs_review, str(one.of.decided_at)))
    newest = {passage.chunk_id: passage for one in by_age for passage in one.passages}
    return dict(sorted(newest.items()))


def _scores(question: Labeled, corpus: dict[str, Passage]) -> dict[str, int]:
    return {
        passage.chunk_id: int(passage.is_right)
        for passage in question.passages
        if (passage.is_right or passage.is_wrong)
        and corpus[passage.chunk_id].content_hash == passage.content_hash
    }


def _judgements(judged: dict[str, dict[str, int]]) -> Iterator[str]:
    for query_id, scores in judged.items():
        for chunk_id, score in sorted(scores.items()):
            yield f"{query_id}\t{beir_id(chunk_id)}\t{score}\n"


def _document(passage: Passage) -> str:
    known = {"chunk_id": passage.chunk_id, "source": passage.source}
    return as_line(
        {
            "_id": beir_id(passage.chunk_id),
            "title": passage.heading,
            "text": passage.text,
            "metadata": known,
        }
    )


def _query(query_id: str, text: str, needs_review: bool) -> str:  # noqa: FBT001  a field
    return as_line({"_id": query_id, "text": text, "metadata": {"needs_review": needs_review}})
