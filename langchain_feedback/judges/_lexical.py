"""What the offline judges compute: shares of words, near copies, and the best passage."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from langchain_feedback.words import content_words, sentence_spans, tokens

__all__ = ["Idf", "Passage", "Weigher", "best_passage", "is_near_copy"]

Idf = Mapping[str, float]

_NEGATIONS = frozenset("no not never none nor neither without".split())
# A full sentence has about this many words and few symbols; labels and code do not.
_FULL_SENTENCE = 6
_SYMBOLS = frozenset("=(){}[]<>_;|/")
_FEW_SYMBOLS = 0.05
_CODE_WORTH = 0.3


class Passage(NamedTuple):
    """A sentence with its neighbors, and what of the question the sentence holds."""

    score: float
    text: str
    held: set[str]


def best_passage(
    text: str, wanted: set[str], weigh: "Weigher", *, max_words: int, rejected: set[str]
) -> Passage | None:
    """Return the sentence that holds most of the wanted words, with its neighbors, or None.

    Args:
        text: The chunk.
        wanted: Stems of the question.
        weigh: The words' weights.
        max_words: Words in the passage, at most, but for a single sentence.
        rejected: Sentences to leave out, as their joined stems.
    """
    spans = [
        (start, end)
        for start, end in sentence_spans(text)
        if not rejected or " ".join(content_words(text[start:end])) not in rejected
    ]
    held = [wanted & set(content_words(text[start:end])) for start, end in spans]
    scores = [
        weigh.share(words, wanted) * _worth(text[start:end])
        for words, (start, end) in zip(held, spans, strict=True)
    ]
    best = max(range(len(spans)), key=scores.__getitem__, default=0)
    if not spans or not held[best]:
        return None
    first, last = best, best + 1
    # Documents name a thing once and say more of it in the sentences around.
    for start, end in ((best - 1, best + 1), (best - 1, best + 2), (best, best + 2)):
        start, end = max(start, 0), min(end, len(spans))  # noqa: PLW2901
        fits = len(tokens(text[spans[start][0] : spans[end - 1][1]])) <= max_words
        if fits and end - start > last - first:
            first, last = start, end
    return Passage(scores[best], _joined(text, spans[first:last]), held[best])


def _worth(sentence: str) -> float:
    symbols = sum(character in _SYMBOLS for character in sentence)
    code = _CODE_WORTH if symbols > _FEW_SYMBOLS * len(sentence) else 1.0
    return code * min(1.0, len(tokens(sentence)) / _FULL_SENTENCE)


def _joined(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Join sentences as they stand, without markers and the line breaks of wrapped text."""
    said = [" ".join(text[start:end].split()) for start, end in spans]
    gaps = [text[one[1] : two[0]] for one, two in pairwise(spans)]
    breaks = ["\n\n" if gap.strip() or gap.count("\n") > 1 else " " for gap in gaps]
    return "".join(part for pair in zip(said, [*breaks, ""], strict=True) for part in pair)


class Weigher:
    """Sums the weights of words; an unknown word weighs as much as the rarest."""

    def __init__(self, idf: Idf | None) -> None:
        self._idf = idf or {}
        self._rarest = max(self._idf.values(), default=1.0)

    def share(self, held: set[str], wanted: set[str]) -> float:
        """Return the weighted share of `wanted` that is `held`, in [0, 1]."""
        total = sum(map(self._weight, wanted))
        return sum(map(self._weight, held)) / total if total else 0.0

    def _weight(self, word: str) -> float:
        return self._idf.get(word, self._rarest)


def is_near_copy(sentence: str, source: str, near: float) -> bool:
    """Whether `near` of the sentence's word pairs stand in the source, and all that matter."""
    said, written = _spelled_out(sentence), _spelled_out(source)
    pairs = set(pairwise(written))
    if len(said) == 1:
        return said[0] in written
    wanted = list(pairwise(said))
    missing = [pair for pair in wanted if pair not in pairs]
    strict = any(
        word in _NEGATIONS or any(map(str.isdigit, word)) for pair in missing for word in pair
    )
    around = zip(written, written[1:], written[2:], strict=False)
    dropped = {(left, right) for left, word, right in around if word in _NEGATIONS}
    named = {
        token for word in sentence.split()[1:] if word[:1].isupper() for token in tokens(word)
    }
    few = bool(wanted) and len(missing) <= (1 - near) * len(wanted)
    return few and not strict and dropped.isdisjoint(wanted) and named <= set(written)


def _spelled_out(text: str) -> list[str]:
    """Return the words, with "not" as one of its own in "cannot" and "don't"."""
    words = []
    for word in tokens(text):
        stem = word.removesuffix("n't") if word != "cannot" else "can"
        words.extend([word] if stem == word else [stem, "not"])
    return words
