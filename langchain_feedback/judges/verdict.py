"""Read a yes or a no out of whatever a model replied, without guessing.

Verdict words are matched as whole clauses, never as substrings: "Notably" holds
no "no", and "yes and no" is neither.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from langchain_core.messages import BaseMessage

__all__ = ["Verdict", "embedded_json", "parse_verdict", "reply_text"]


class Verdict(StrEnum):
    """A judge's answer. `UNKNOWN`: the reply held no clear one, which is never a no."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def _phrases(words: str) -> frozenset[str]:
    return frozenset(words.replace("_", " ") if "_" in words else words for words in words.split())


# "_" stands for a space. Partial support is not support.
_WORDS = {
    Verdict.YES: _phrases(
        "yes yeah yep true correct relevant grounded supported entailed fully_supported "
        "fully_grounded fully_relevant highly_relevant ja oui sí si sim sì да tak evet はい "
        "是 是的 对 相关 有关 예 네"
    ),
    Verdict.NO: _phrases(
        "no nope false incorrect irrelevant ungrounded unsupported partial partially not_relevant "
        "not_grounded not_supported not_entailed not_correct partially_relevant "
        "partially_grounded partially_supported nein non não нет nie hayır いいえ 否 不 不是 "
        "不相关 无关 아니오 아니요"
    ),
}
# Before a colon these open a reason; "Supported:" may as well be a label without a value.
_PLAIN = _phrases(
    "yes yeah yep true ja oui sí si sim sì да tak evet はい 是 是的 对 예 네 "
    "no nope false nein non não нет nie hayır いいえ 否 不 不是 아니오 아니요"
)
# A lone "1" or "y" is a verdict only as the whole reply or with one of `_KEYS`: "1." opens a list.
_SHORT = {"1": Verdict.YES, "y": Verdict.YES, "0": Verdict.NO, "n": Verdict.NO}
_KEYS = (
    "verdict binary_score answer relevant is_relevant grounded is_grounded supported "
    "is_supported score grade label result decision"
).split()
_LABELS = frozenset(key.replace("_", " ") for key in _KEYS)
_NOTHING = frozenset("yes no none nothing false true nil null 0 n/a".split()) | {""}

_TAG = "(?:think|thinking|reasoning|thought)"
_THINKING = re.compile(rf"<({_TAG})>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_THINKING_END = re.compile(rf"^.*</{_TAG}>", re.DOTALL | re.IGNORECASE)
_OPENED = re.compile(rf"\s*<({_TAG})>", re.IGNORECASE)
_CLOSED = re.compile(rf"^[ \t]*</{_TAG}>", re.IGNORECASE | re.MULTILINE)
# The look-behind keeps it linear: one attempt for each run of marks.
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++(?=\s|$)|[。！？\n]+")
_CLAUSE_END = re.compile(r"[,;，；、(]|\s[-–—]+\s|—")
_LABELLED = re.compile(r"^(?P<label>[^:=：,;，；、(]{1,40}?)\s*[:=：]\s*(?P<value>.+)$")
# "Hallucinated: no" is good news: a label that already denies makes its value unreadable here.
_DENIAL = re.compile(
    r"\b(not?|un\w+|ir\w+|in(?:correct|valid)|hallucinat\w*|missing|partial\w*|contradict\w*|off-topic|fabricat\w*|insufficient)\b"
)
# What stands behind these is a reason or an echo, whatever word it opens with.
_OTHER = re.compile(
    r"\b(?:reason\w*|explanation|rationale|justification|thoughts?|question|context)\b"
)
_OPENING = re.compile(
    r"^(?P<verdict>yes|no|(?:not |un|ir)?(?:relevant|grounded|supported))"
    r" (?:it|this|that|there|the|because|since)\b"
)
_STATEMENT = re.compile(
    r"^(?:the |this )?(?:document|chunk|passage|context|text|answer|claim|it|this)"
    r"(?P<is> is|'s| isn't)(?: fully| clearly| directly)?"
    r" (?P<verdict>(?:not |un|ir)?(?:relevant|grounded|supported))\b"
)
# A yes with one of these is half a yes, which is none.
_RESERVE = re.compile(
    r"\b(?:yes|yep|true|correct|relevant|grounded|supported)\b\W{0,3}"
    r"(?:but|however|except|although|though|apart from|partly|partially|only partly)\b"
)


def reply_text(reply: Any) -> str:
    """Return the text of a reply: a string, a message, or a list of content blocks.

    Thinking, reasoning and other blocks without text are left out, and so are reasoning
    sections that open the text (`<think>...</think>`, closed or not).

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> blocks = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "yes"}]
        >>> reply_text(AIMessage(content=blocks))
        'yes'
    """
    text = _whole_text(reply)
    while opened := _OPENED.match(text):
        text = text[opened.end() :]
        at = text.casefold().find(f"</{opened[1].casefold()}>")
        text = text[at + len(opened[1]) + 3 :] if at >= 0 else ""
    # Some chat templates open the section themselves: only its end reaches us.
    if (closed := _CLOSED.search(text)) and not re.search(rf"<{_TAG}>", text[: closed.start()]):
        text = text[closed.end() :]
    return text.strip()


def parse_verdict(reply: Any) -> Verdict:
    """Read a verdict tolerantly: case, marks, Markdown, thinking, content blocks, JSON, labels.

    Args:
        reply: A string, a message, a list of content blocks, a bool, or a mapping.

    Returns:
        `UNKNOWN` for an empty reply, a refusal, both answers at once, or no clear one.

    Example:
        >>> [str(parse_verdict(text)) for text in ("**Yes**", "No, this is about shipping.")]
        ['yes', 'no']
        >>> [str(parse_verdict(text)) for text in ("yes/no", "Not sure", "", {"score": True})]
        ['unknown', 'unknown', 'unknown', 'yes']
    """
    if isinstance(reply, bool):
        return Verdict.YES if reply else Verdict.NO
    if isinstance(reply, Mapping):
        return _from_mapping(reply)
    text = _THINKING_END.sub("", _THINKING.sub("", _whole_text(reply))).strip()
    start, end, data = _find_json(text)
    if data is None:
        return _from_text(text)
    # The object may be the reply, or an echo of a chunk beside the verdict.
    said = _from_text(f"{text[:start]}\n{text[end:]}")
    written = _from_mapping(data)
    known = {said, written} - {Verdict.UNKNOWN}
    return known.pop() if len(known) == 1 else Verdict.UNKNOWN


def _whole_text(reply: Any) -> str:
    if isinstance(reply, BaseMessage):
        return str(reply.text)
    if isinstance(reply, list):
        blocks = (block if isinstance(block, str) else _block_text(block) for block in reply)
        return "".join(blocks)
    return "" if reply is None else str(reply)


def _block_text(block: Any) -> str:
    is_text = isinstance(block, Mapping) and block.get("type") == "text"
    return str(block.get("text") or "") if is_text else ""


def embedded_json(text: str) -> dict[str, Any] | None:
    """Return the first JSON object in `text`, fenced or not."""
    return _find_json(text)[2]


def _find_json(text: str) -> tuple[int, int, dict[str, Any] | None]:
    """Return where the first JSON object starts and ends, and the object."""
    start = text.find("{")
    if start < 0:
        return 0, 0, None
    try:
        data, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return 0, 0, None
    return start, end, data if isinstance(data, dict) else None


def _from_mapping(data: Mapping[str, Any]) -> Verdict:
    folded = {str(key).strip().casefold(): value for key, value in data.items()}
    values = [folded[key] for key in _KEYS if folded.get(key) is not None]
    return _agreed(
        Verdict.YES if value is True else Verdict.NO if value is False else _from_text(str(value))
        for value in values
    )


def _from_text(text: str) -> Verdict:
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    folded = re.sub(r"[*_`#>\"“”]+", " ", folded)
    folded = re.sub(r"\bno\.\s*(?=\d)", "number ", folded)
    if whole := _SHORT.get(folded.strip(" .!")):
        return whole
    sentences = [part.strip() for part in _SENTENCE_END.split(folded) if _bare(part)]
    labelled = [verdict for part in sentences for verdict in _labelled(part)]
    half = _RESERVE.search(folded) is not None
    if labelled:
        verdict = _agreed(labelled)
        return Verdict.UNKNOWN if half and verdict is Verdict.YES else verdict
    if not sentences:
        return Verdict.UNKNOWN
    first, last = _clauses(sentences[0]), _clauses(sentences[-1])
    # A verdict opens a reply or closes it; what stands between is a reason or an echo.
    candidates = dict.fromkeys([first[0], last[0], last[-1]])
    readers = (_clause, _labelled, _reasoned)
    verdict = _agreed(found for clause in candidates for read in readers for found in read(clause))
    return Verdict.UNKNOWN if half and verdict is Verdict.YES else verdict


def _clauses(sentence: str) -> list[str]:
    """Split at commas, dashes and brackets; bullets and marks around a part go."""
    parts = (_bare(part).removeprefix("but ") for part in _CLAUSE_END.split(sentence))
    return [part for part in parts if part] or [""]


def _bare(text: str) -> str:
    start, end = 0, len(text)
    while start < end and not text[start].isalnum():
        start += 1
    while end > start and not text[end - 1].isalnum():
        end -= 1
    return text[start:end]


def _labelled(clause: str) -> Iterator[Verdict]:
    """Read "Verdict: no"."""
    match = _LABELLED.match(clause)
    label = _bare(match["label"]) if match else ""
    if not match or not label or _DENIAL.search(label) or _OTHER.search(label):
        return
    if label in _LABELS and (short := _SHORT.get(match["value"].strip(" .!'"))):
        yield short
    yield from _clause(_clauses(match["value"])[0])


def _reasoned(clause: str) -> Iterator[Verdict]:
    """Read a verdict before a reason: "No: it lists fees", but not "Unsupported: none"."""
    if not (match := _LABELLED.match(clause)):
        return
    label, opening = _bare(match["label"]), _clauses(match["value"])[0].split(" ")[0]
    if label in _PLAIN or (_DENIAL.search(label) and opening not in _NOTHING):
        yield from _clause(label)


def _clause(clause: str) -> Iterator[Verdict]:
    for verdict, words in _WORDS.items():
        if clause in words:
            yield verdict
    if opening := _OPENING.match(clause):
        yield Verdict.NO if opening["verdict"] in _WORDS[Verdict.NO] else Verdict.YES
    if statement := _STATEMENT.match(clause):
        denied = statement["is"] == " isn't" or statement["verdict"] in _WORDS[Verdict.NO]
        yield Verdict.NO if denied else Verdict.YES


def _agreed(verdicts: Any) -> Verdict:
    distinct = set(verdicts)
    return distinct.pop() if len(distinct) == 1 else Verdict.UNKNOWN
