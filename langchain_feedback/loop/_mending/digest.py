"""What an owner is told in a week, as data, as plain text, and as Markdown."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_feedback.loop._mending.fixed import suspects_of
from langchain_feedback.store.deliveries import Delivery
from langchain_feedback.store.owner_items import OwnerItem

__all__ = ["as_markdown", "as_text", "digest_of", "subject_of"]

_KINDS = {
    "correction": ("correction", "corrections"),
    "missing_document": ("missing document", "missing documents"),
    "stale_document": ("outdated document", "outdated documents"),
}
_OPENING = (
    "Readers and reviewers say that these documents are wrong, outdated or missing. What they "
    "say is no fact yet: please look, and correct the document where they are right."
)
_FENCE = re.compile(r"`{3,}")


def digest_of(delivery: Delivery, items: Sequence[OwnerItem]) -> dict[str, Any]:
    """Return what one message says; no names of those who rated or reviewed are in it."""
    return {
        "type": "langchain-feedback.digest",
        "version": 1,
        "delivery_id": delivery.delivery_id,
        "namespace": delivery.namespace,
        "owner": delivery.owner,
        "week": delivery.payload.get("week", ""),
        "items": [_told(item) for item in items],
        "more": max(0, int(delivery.payload.get("in_all", 0)) - len(delivery.payload["items"])),
    }


def subject_of(digest: Mapping[str, Any]) -> str:
    """Return a digest's subject line.

    Example:
        >>> subject_of({"week": "2026-W49", "items": [{"kind": "correction"}]})
        'Your documents: 1 correction (2026-W49)'
    """
    counts = Counter(item["kind"] for item in digest["items"])
    named = [f"{n} {_KINDS.get(kind, (kind, kind))[n > 1]}" for kind, n in counts.items()]
    return f"Your documents: {', '.join(named)} ({digest['week']})"


def as_text(digest: Mapping[str, Any]) -> str:
    """Return a digest as the body of an e-mail."""
    parts = [f"Hello {digest['owner']},", _OPENING]
    for number, item in enumerate(digest["items"], start=1):
        lines = [f"{number}. {_title(item)}"]
        lines += [f"   {name}: {_one_line(text)}" for name, text in _facts(item)]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, *_closing(digest)]) + "\n"


def as_markdown(digest: Mapping[str, Any]) -> str:
    """Return a digest as the body of an issue, in which nobody's words are markup or mentions."""
    parts = [f"# {subject_of(digest)}", _OPENING]
    for item in digest["items"]:
        lines = [f"{name}: {_one_line(text)}" for name, text in _facts(item)]
        body = "\n".join([_title(item), *lines])
        longest = max((len(run) for run in _FENCE.findall(body)), default=2)
        fence = "`" * (longest + 1)
        parts.append(f"- [ ] {_KINDS.get(item['kind'], (item['kind'],))[0]}, {item['state']}")
        parts.append(f"{fence}text\n{body}\n{fence}")
    return "\n\n".join([*parts, *_closing(digest)]) + "\n"


def _told(item: OwnerItem) -> dict[str, Any]:
    shown = item.snapshot.get("chunks") or []
    mine: Mapping[str, Any] = next(
        (one for one in shown if one.get("chunk_id") == item.chunk_id), {}
    )
    suspects = suspects_of(item) if item.chunk_id else []
    return {
        "item_id": item.item_id,
        "kind": item.kind,
        "state": item.state,
        "source": item.source,
        "heading": mine.get("heading"),
        "url": mine.get("url"),
        "chunk_id": item.chunk_id,
        "question": item.question,
        "questions": item.snapshot.get("questions", []),
        "asked": item.snapshot.get("asks"),
        "answer": item.snapshot.get("answer"),
        "says": suspects[0].text if suspects else "",
        "would_be_right": item.text,
        "opened_at": item.opened_at.isoformat(),
    }


def _title(item: Mapping[str, Any]) -> str:
    kind = _KINDS.get(item["kind"], (item["kind"],))[0].capitalize()
    where = " > ".join(str(part) for part in (item["source"], item["heading"]) if part)
    return _one_line(f"{kind}{': ' + where if where else ''} ({item['state']})")


def _facts(item: Mapping[str, Any]) -> list[tuple[str, str]]:
    missing = item["kind"] == "missing_document"
    facts = {
        "Question": item["question"],
        "Asked": f"{item['asked']} times" if item["asked"] else "",
        "Answered": item["answer"],
        "The document says": item["says"],
        "What is missing" if missing else "What would be right": item["would_be_right"],
        "Where": item["url"],
        "Item": item["item_id"],
    }
    return [(name, str(text)) for name, text in facts.items() if text]


def _closing(digest: Mapping[str, Any]) -> list[str]:
    return [f"And {digest['more']} older ones."] if digest["more"] else []


def _one_line(text: str) -> str:
    return " ".join(text.split())
