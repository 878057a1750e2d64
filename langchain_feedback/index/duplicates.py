"""Chunks that say the same: exact copies collapse to the first seen, near ones are suggested.

Everything stays within one namespace, which is the caller's, and within a scope: the same
text in two tenants' indexes is right. A near duplicate shares at least nine tenths of its
word 3-grams with a chunk that stands for itself, and every number, sign and negation; nobody
is a duplicate of a duplicate, so a chain of small changes never becomes one text. Vectors
decide nothing here: among pairs with a cosine of .92 or more, a third differ in a number.
"""

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from langchain_feedback.index.sketches import PERMUTATIONS, jaccard, shingles, sketch, telling

__all__ = [
    "Chunk",
    "Duplicate",
    "exact_duplicates",
    "first_seen",
    "folded",
    "folded_hash",
    "near_duplicates",
]

_BANDS = 16
"""With 8 values each, a pair of similarity .9 meets in some band 9,999 times in 10,000."""

_DOUBT = 0.12
"""How far below the threshold a sketch may put a pair that is compared in full: 4.5 deviations."""

_CROWD = 100
"""How many representatives of a band's value are kept to be compared with: others differ."""

_BEST = 16
"""How many of them are compared in full, those first whose sketches agree most."""

_BLOCK = 5_000

_INDENTED = re.compile(r"\n[ \t]+\S")

Sketches = NDArray[np.uint32]


@dataclass(frozen=True)
class Chunk:
    """What is compared of a chunk."""

    id: str
    """Its key, once in what is compared."""
    text: str
    source: str = ""
    """Where it comes from; shown, never compared."""
    scope: str = ""
    """Whose it is, such as a tenant: chunks of two scopes are never duplicates."""


@dataclass(frozen=True)
class Duplicate:
    """That a chunk says what another says that was seen before."""

    id: str
    of: str
    """The chunk that stands for both; never a duplicate itself."""
    kind: Literal["exact", "near"]
    similarity: float
    """The share of word 3-grams that both have, in [0, 1]; 1 of an exact one."""


def folded(text: str) -> str:
    r"""Return a text without the differences that say nothing: case, accents' form, white space.

    Compatibility forms stay, since `10⁵` is not 105. Where a line is indented, lines and
    indents stay too: in code and nested lists they are part of what is said.

    Example:
        >>> folded(" Refunds  take\n14 DAYS. ")
        'refunds take 14 days.'
        >>> folded("if a:\n    b\nc") == folded("if a:\n    b\n    c")
        False
    """
    plain = unicodedata.normalize("NFD", text).casefold()
    plain = unicodedata.normalize("NFC", plain).strip()
    if not _INDENTED.search(plain):
        return " ".join(plain.split())
    lines = (line for line in plain.split("\n") if line.strip())
    return "\n".join(_indent(line) + " ".join(line.split()) for line in lines)


def folded_hash(text: str, scope: str = "") -> str:
    """Return the SHA-256 of a scope and a folded text: equal for exact duplicates only.

    Example:
        >>> folded_hash("Refunds") == folded_hash("REFUNDS ")
        True
        >>> folded_hash("Refunds", "tenant a") == folded_hash("Refunds", "tenant b")
        False
    """
    # Length first: no choice of scope and text can imitate another pair.
    told = f"{len(scope)}:{scope}{folded(text)}"
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()


def exact_duplicates(chunks: Iterable[Chunk]) -> list[Duplicate]:
    """Return the chunks whose folded text was seen before in their scope, in order.

    Args:
        chunks: The chunks of one namespace, those first that shall stay.

    Raises:
        ValueError: If an id comes twice.

    Example:
        >>> texts = ("14 days", "14  Days", "41 days")
        >>> exact_duplicates(Chunk(str(at), text) for at, text in enumerate(texts))
        [Duplicate(id='1', of='0', kind='exact', similarity=1.0)]
    """
    first: dict[str, str] = {}
    found = []
    for chunk in _once(chunks):
        of = first.setdefault(folded_hash(chunk.text, chunk.scope), chunk.id)
        if of != chunk.id:
            found.append(Duplicate(chunk.id, of, "exact", 1.0))
    return found


def first_seen(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Collapse exact duplicates: return the first chunk of each text, in order.

    Raises:
        ValueError: If an id comes twice.

    Example:
        >>> [chunk.id for chunk in first_seen([Chunk("1", "days"), Chunk("2", "Days")])]
        ['1']
    """
    chunks = list(chunks)
    copies = {duplicate.id for duplicate in exact_duplicates(chunks)}
    return [chunk for chunk in chunks if chunk.id not in copies]


def near_duplicates(chunks: Iterable[Chunk], *, threshold: float = 0.9) -> list[Duplicate]:
    """Suggest the chunks that hardly differ from an earlier one; exact duplicates are left out.

    Sketches only find the candidates: every pair that is returned was compared in full;
    100,000 chunks of 90 words take about 13 s of one core, and 100 MB beside the texts.

    Args:
        chunks: The chunks of one namespace, those first that shall stay.
        threshold: The least share of common word 3-grams, in [.8, 1]: sketches find pairs
            reliably from .8 up.

    Returns:
        In order of the chunks, each with the most similar representative.

    Raises:
        ValueError: If an id comes twice, or the threshold is out of range.
        MissingExtraError: If datasketch is not installed.

    Example:
        >>> text = "The warranty of a pump covers two years from the day of delivery. " * 2
        >>> words = ("a pump", "the pump", "a pump that runs 5 years")
        >>> chunks = [Chunk(word, text.replace("a pump", word, 1)) for word in words]
        >>> [(pair.id, pair.of) for pair in near_duplicates(chunks, threshold=0.8)]
        [('the pump', 'a pump')]
    """
    if not 0.8 <= threshold <= 1:  # noqa: PLR2004
        msg = f"threshold must be in [.8, 1], got {threshold!r}"
        raise ValueError(msg)
    distinct = first_seen(chunks)
    sketches = _sketches(distinct)
    return list(_compared(distinct, sketches, _meetings(distinct, sketches), threshold))


def _once(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    known = set()
    for chunk in chunks:
        if chunk.id in known:
            msg = f"The chunk {chunk.id!r} comes twice: compare each chunk once"
            raise ValueError(msg)
        known.add(chunk.id)
        yield chunk


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _sketches(chunks: Sequence[Chunk]) -> Sketches:
    """Return the sketch of each chunk, shape `(n, PERMUTATIONS)`."""
    sketches = np.empty((len(chunks), PERMUTATIONS), np.uint32)
    for start in range(0, len(chunks), _BLOCK):
        block = chunks[start : start + _BLOCK]
        sketches[start : start + len(block)] = sketch(shingles(chunk.text) for chunk in block)
    return sketches


def _meetings(chunks: Sequence[Chunk], sketches: Sketches) -> dict[int, list[int]]:
    """Return where each chunk meets others of its scope: a number for each common band."""
    scopes = {scope: at for at, scope in enumerate({chunk.scope for chunk in chunks})}
    scope_of = np.array([scopes[chunk.scope] for chunk in chunks], np.uint64)
    width = PERMUTATIONS // _BANDS
    met: dict[int, list[int]] = defaultdict(list)
    group = 0
    for start in range(0, PERMUTATIONS, width):
        keys = np.column_stack([scope_of, _pairs(sketches[:, start : start + width])])
        order = np.lexsort(keys.T)
        same = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
        for first, last in _runs(same):
            for at in order[first:last].tolist():
                met[at].append(group)
            group += 1
    return dict(sorted(met.items()))


def _pairs(band: Sketches) -> NDArray[np.uint64]:
    return np.ascontiguousarray(band).view(np.uint64)


def _runs(same: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Return the start and end of each run of equal neighbors."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    for first, last in edges.reshape(-1, 2).tolist():
        yield first, last + 1


def _compared(
    chunks: Sequence[Chunk], sketches: Sketches, met: dict[int, list[int]], threshold: float
) -> Iterator[Duplicate]:
    """Compare each chunk with the earlier ones that it meets and that stand for themselves."""
    standing: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, groups in met.items():
        # What differs in a number or a negation never meets: the guard is part of the key.
        told = hash(telling(chunks[at].text))
        places = [standing[group, told] for group in groups]
        candidates = sorted({other for place in places for other in place})
        best = _best(chunks, sketches, at, candidates, threshold)
        if best is not None:
            yield best
            continue
        for place in places:
            if len(place) < _CROWD:
                place.append(at)


def _best(
    chunks: Sequence[Chunk], sketches: Sketches, at: int, others: list[int], threshold: float
) -> Duplicate | None:
    if not others:
        return None
    agreement = (sketches[others] == sketches[at]).mean(axis=1)
    likely = np.argsort(-agreement, kind="stable")[:_BEST].tolist()
    likely = [others[i] for i in likely if agreement[i] >= threshold - _DOUBT]
    mine = shingles(chunks[at].text)
    scored = [(jaccard(mine, shingles(chunks[other].text)), -other) for other in likely]
    similarity, of = max(scored, default=(0.0, 0))
    if similarity < threshold or telling(chunks[at].text) != telling(chunks[-of].text):
        return None
    return Duplicate(chunks[at].id, chunks[-of].id, "near", similarity)
