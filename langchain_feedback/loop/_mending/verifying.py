"""Whether an item may be called verified, by what its questions are answered now."""

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_feedback.judges.base import DocumentGrader
from langchain_feedback.loop._deriving.asking_again import Found, Reply
from langchain_feedback.loop._mending.fixed import suspects_of
from langchain_feedback.quotes.figures import missing_figures
from langchain_feedback.store.owner_items import OwnerItem

__all__ = ["objections", "shows_change"]


def objections(
    item: OwnerItem,
    replies: Sequence[Reply],
    *,
    before: str | None,
    changed: bool,
    grader: DocumentGrader | None,
) -> list[str]:
    """Return what speaks against it, in sentences; an empty list: it is verified.

    Args:
        item: What was wrong or missing.
        replies: To each of its questions, its own first.
        before: The answer that was wrong.
        changed: Whether there is a sign that the document was changed.
        grader: Says whether a chunk helps to answer a question.
    """
    if item.kind == "missing_document":
        return [why for reply in replies for why in _not_written(item, reply, grader)]
    reply, suspects = replies[0], suspects_of(item)
    rests = [*_not_answered(reply)] if reply.is_answer else []
    if still := _among(reply.prompt, {one.content_hash for one in suspects}):
        verb = "rests on" if reply.is_answer else "finds"
        rests.append(f"It still {verb} the wrong text of chunk {still[0].chunk_id}.")
    new = _figures(item, before, [one.text for one in suspects])
    if reply.is_answer:
        return rests + _not_right(reply, new, changed=changed, told=bool(suspects or new))
    return rests + _not_found(item, reply, new)


def shows_change(item: OwnerItem, reply: Reply) -> bool:
    """Whether a reply holds a text that has taken the place of a wrong one."""
    return bool(_changed(item, reply))


def _not_answered(reply: Reply) -> list[str]:
    if reply.status != "answered" or not (reply.answer or "").strip():
        return [f"{reply.question!r} is not answered ({reply.reason or reply.status})."]
    if reply.grounded is not True:
        return [f"Nobody found the answer to {reply.question!r} to be grounded."]
    return []


def _not_right(reply: Reply, new: list[str], *, changed: bool, told: bool) -> list[str]:
    if not told:
        return ["Neither a chunk nor a figure tells right from wrong here: a person must look."]
    against = [] if changed else ["Nothing shows that the document was changed."]
    return against + _lacking(new, reply.answer or "", "The answer")


def _not_found(item: OwnerItem, reply: Reply, new: list[str]) -> list[str]:
    changed = _changed(item, reply)
    if not changed:
        return ["A changed text of the source is not among what is found."]
    return _lacking(new, "\n".join(one.document.page_content for one in changed), "The new text")


def _not_written(item: OwnerItem, reply: Reply, grader: DocumentGrader | None) -> list[str]:
    if reply.is_answer:
        against, rests_on = _not_answered(reply), reply.prompt
    elif grader is None:
        return ["A retriever alone cannot tell that it is answered: pass a grader, or a graph."]
    else:
        rests_on = _graded(reply, grader)
        against = [] if rests_on else [f"Nothing relevant is found for {reply.question!r}."]
    if against or item.opened_by is None:
        return against
    # A reviewer said that what was there is no answer.
    if all(one.content_hash in _known(item) for one in rests_on):
        return [f"The answer to {reply.question!r} rests on what was there before."]
    return []


def _graded(reply: Reply, grader: DocumentGrader) -> tuple[Found, ...]:
    documents = [one.document for one in reply.chunks]
    if not documents:
        return ()
    grades = grader.invoke({"question": reply.question, "documents": documents})
    pairs = zip(reply.chunks, grades, strict=True)
    return tuple(found for found, grade in pairs if grade["verdict"] == "yes")


def _changed(item: OwnerItem, reply: Reply) -> list[Found]:
    known, ids = _known(item), {one.chunk_id for one in suspects_of(item)}
    return [
        one
        for one in reply.chunks
        if one.content_hash not in known
        and (one.chunk_id in ids or (item.source and one.source == item.source))
    ]


def _known(item: OwnerItem) -> set[str]:
    """Return the texts that were there when it was opened."""
    shown: list[Any] = item.snapshot.get("chunks") or []
    return {str(one.get("content_hash")) for one in shown} | {item.content_hash or ""}


def _among(found: Iterable[Found], hashes: set[str]) -> list[Found]:
    return [one for one in found if one.content_hash in hashes]


def _figures(item: OwnerItem, before: str | None, wrong: Sequence[str]) -> list[str]:
    """Return the figures that a correction has and what was wrong has not."""
    if item.kind != "correction":
        return []
    # An answer may hold more than the chunk that is wrong.
    return missing_figures(item.text, [text for text in wrong if text] or [before or ""])


def _lacking(new: list[str], text: str, what: str) -> list[str]:
    """Object where a text has none of the new figures; one may be beside the point."""
    if new and len(missing_figures(", ".join(new), [text])) == len(new):
        return [f"{what} has none of the figures of the correction: {', '.join(new)}."]
    return []
