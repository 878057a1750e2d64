"""Judges and a generator that work without a model: lexical, fast, and modest.

For demos, tests, and as a first stage before a model. They see words, not meaning:
a swapped fact inside a copied sentence is invisible to them. What was measured
stands in each docstring; nothing more is claimed.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from langchain_feedback.documents import chunk_key
from langchain_feedback.judges.base import (
    AnswerGenerator,
    CheckingRequest,
    Citation,
    DocumentGrader,
    GenerationRequest,
    Grade,
    GradingRequest,
    Groundedness,
    GroundednessChecker,
    Highlighter,
)
from langchain_feedback.judges.grading import make_grade
from langchain_feedback.judges.groundedness import make_groundedness
from langchain_feedback.judges.highlighting import cite
from langchain_feedback.judges.verdict import Verdict
from langchain_feedback.words import content_words, sentence_spans, tokens

__all__ = [
    "ExtractiveGenerator",
    "LexicalGrader",
    "LexicalGroundednessChecker",
    "SentenceHighlighter",
]

_NEGATIONS = frozenset("no not never none nor without cannot can't won't don't isn't".split())
_Idf = Mapping[str, float]


class LexicalGrader(DocumentGrader):
    """Keeps a chunk that holds enough of the question's content words.

    The share is weighted by how rare each word is, where `idf` says so. A word
    that the corpus does not know weighs most, so a question about something else
    finds nothing.

    Args:
        idf: Weight of each stem (see `inverse_document_frequency`); None: all equal.
        threshold: The least share that is relevant, in (0, 1].
        id_field: The metadata field that holds a chunk's id, if any.

    Raises:
        ValueError: If `threshold` is out of range.

    Example:
        >>> chunks = [Document("A refund takes 14 days.", id="a"), Document("Keys.", id="b")]
        >>> grades = LexicalGrader().invoke({"question": "How long does a refund take?",
        ...                                  "documents": chunks})
        >>> [grade["verdict"] for grade in grades]
        ['yes', 'no']
    """

    def __init__(
        self, *, idf: _Idf | None = None, threshold: float = 0.34, id_field: str | None = None
    ) -> None:
        if not 0 < threshold <= 1:
            msg = f"threshold must be in (0, 1], got {threshold!r}"
            raise ValueError(msg)
        self.threshold = threshold
        self.id_field = id_field
        self._weigh = _Weigher(idf)

    def judge(self, request: GradingRequest, config: RunnableConfig) -> list[Grade]:  # noqa: ARG002
        """Grade each chunk by the words it shares with the question."""
        wanted = set(content_words(request["question"]))
        return [self._grade(wanted, document) for document in request["documents"]]

    def _grade(self, wanted: set[str], document: Document) -> Grade:
        held = wanted & set(content_words(_with_heading(document)))
        share = self._weigh.share(held, wanted)
        verdict = Verdict.YES if share >= self.threshold else Verdict.NO
        reason = f"holds {len(held)} of {len(wanted)} content words (weighted {share:.2f})"
        return make_grade(chunk_key(document, self.id_field), verdict, reason)


class LexicalGroundednessChecker(GroundednessChecker):
    """Two rules that hold, and `unknown` for everything between them.

    A sentence whose words are mostly absent from the chunks (weighted coverage
    under .30) is not grounded. A near copy (95 % of its word pairs stand in one
    chunk, every pair with a number or a negation does, no name is missing) is
    grounded. `benchmarks` on BEGIN: the first rule was right in 97 % of the cases
    it decided, the second in 95 % or more; on minimally edited summaries neither
    decides anything of use.

    Args:
        idf: Weight of each stem; None: all equal.

    Example:
        >>> chunk = Document("A refund takes 14 days after approval.")
        >>> checker = LexicalGroundednessChecker()
        >>> [checker.invoke({"question": "", "answer": answer, "documents": [chunk]})["verdict"]
        ...  for answer in ("A refund takes 14 days.", "Elephants are grey.")]
        ['yes', 'no']
    """

    far = 0.30
    near = 0.95

    def __init__(self, *, idf: _Idf | None = None) -> None:
        self._weigh = _Weigher(idf)

    def judge(self, request: CheckingRequest, config: RunnableConfig) -> Groundedness:  # noqa: ARG002
        """Judge the answer sentence by sentence; the worst sentence decides."""
        answer = request["answer"]
        sources = [document.page_content for document in request["documents"]]
        sentences = [answer[start:end] for start, end in sentence_spans(answer)]
        if not sentences or not any(map(str.strip, sources)):
            return make_groundedness("no", reason="There is no answer, or nothing to rest on.")
        verdicts = {sentence: self._sentence(sentence, sources) for sentence in sentences}
        unsupported = [text for text, verdict in verdicts.items() if verdict is Verdict.NO]
        if unsupported:
            return make_groundedness(
                Verdict.NO, reason="A sentence is far from every chunk.", unsupported=unsupported
            )
        if all(verdict is Verdict.YES for verdict in verdicts.values()):
            return make_groundedness(Verdict.YES, reason="Every sentence is a near copy.")
        return make_groundedness(Verdict.UNKNOWN, reason="Neither a copy nor far from the chunks.")

    def _sentence(self, sentence: str, sources: list[str]) -> Verdict:
        wanted = content_words(sentence)
        held = {word for source in sources for word in content_words(source)}
        if wanted and self._weigh.share(held & set(wanted), set(wanted)) < self.far:
            return Verdict.NO
        copied = any(_is_near_copy(sentence, source, self.near) for source in sources)
        return Verdict.YES if copied else Verdict.UNKNOWN


class ExtractiveGenerator(AnswerGenerator):
    """Answers with the sentences of the chunks that fit the question best, word for word.

    A sentence is scored by the weighted share of the question's content words in
    it, with a part of the share in its neighbors and heading, since documents
    name a thing once and go on about it.

    Args:
        idf: Weight of each stem; None: all equal.
        max_sentences: The longest answer, at least 1.

    Raises:
        ValueError: If `max_sentences` is below 1.

    Example:
        >>> chunk = Document("Plans are monthly. A refund takes 14 days.")
        >>> ExtractiveGenerator().invoke({"question": "How long does a refund take?",
        ...     "documents": [chunk], "history": "", "unsupported": []})
        'A refund takes 14 days.'
    """

    def __init__(self, *, idf: _Idf | None = None, max_sentences: int = 2) -> None:
        if max_sentences < 1:
            msg = f"max_sentences must be at least 1, got {max_sentences!r}"
            raise ValueError(msg)
        self.max_sentences = max_sentences
        self._weigh = _Weigher(idf)

    def judge(self, request: GenerationRequest, config: RunnableConfig) -> str:  # noqa: ARG002
        """Pick the best sentences; an empty string where none shares a word."""
        wanted = set(content_words(request["question"]))
        rejected = set(request["unsupported"])
        scored = [
            sentence
            for rank, document in enumerate(request["documents"])
            for sentence in self._scored(wanted, document, rank)
            if sentence.text not in rejected
        ]
        scored.sort(key=lambda sentence: -sentence.score)
        picked: list[_Scored] = []
        covered: set[str] = set()
        for sentence in scored[: 4 * self.max_sentences]:
            fresh = sentence.held - covered
            close = picked and sentence.score >= _SECOND * picked[0].score
            if sentence.held and (not picked or (fresh and close)):
                picked.append(sentence)
                covered |= sentence.held
            if len(picked) == self.max_sentences:
                break
        picked.sort(key=lambda sentence: sentence.place)
        return " ".join(sentence.text for sentence in picked)

    def _scored(self, wanted: set[str], document: Document, rank: int) -> Iterator["_Scored"]:
        text = document.page_content
        spans = sentence_spans(text)
        held = [wanted & set(content_words(text[start:end])) for start, end in spans]
        heading = wanted & set(content_words(_heading(document)))
        for i, (start, end) in enumerate(spans):
            around = heading.union(*held[max(0, i - 1) : i + 2])
            own = self._weigh.share(held[i], wanted)
            score = own + _NEIGHBORS * self._weigh.share(around, wanted)
            # A title or a lone label says nothing; the retriever's order breaks ties.
            words = len(tokens(text[start:end]))
            score *= min(1.0, words / _FULL_SENTENCE) * (1 - 0.02 * rank)
            yield _Scored(score, (rank, i), " ".join(text[start:end].split()), held[i])


class SentenceHighlighter(Highlighter):
    """Cites each sentence of the answer that stands word for word in a chunk.

    Args:
        id_field: The metadata field that holds a chunk's id, if any.

    Example:
        >>> chunk = Document("Note: refunds take 14 days.", id="a")
        >>> [citation] = SentenceHighlighter().invoke({"question": "How long?",
        ...     "answer": "refunds take 14 days.", "documents": [chunk]})
        >>> citation["start"], citation["verified"]
        (6, True)
    """

    def __init__(self, *, id_field: str | None = None) -> None:
        self.id_field = id_field

    def judge(self, request: CheckingRequest, config: RunnableConfig) -> list[Citation]:  # noqa: ARG002
        """Look each sentence up in the chunks."""
        answer = request["answer"]
        found = (
            cite(answer[start:end], None, request["documents"], self.id_field)
            for start, end in sentence_spans(answer)
        )
        return [citation for citation in found if citation]


_SECOND = 0.7
_NEIGHBORS = 0.5
_FULL_SENTENCE = 6


class _Scored(NamedTuple):
    score: float
    place: tuple[int, int]
    text: str
    held: set[str]


class _Weigher:
    """Sums the weights of words; an unknown word weighs as much as the rarest."""

    def __init__(self, idf: _Idf | None) -> None:
        self._idf = idf or {}
        self._rarest = max(self._idf.values(), default=1.0)

    def share(self, held: set[str], wanted: set[str]) -> float:
        total = sum(self._idf.get(word, self._rarest) for word in wanted)
        return sum(self._idf.get(word, self._rarest) for word in held) / total if total else 0.0


def _is_near_copy(sentence: str, source: str, near: float) -> bool:
    said, written = tokens(sentence), tokens(source)
    pairs = set(pairwise(written))
    if len(said) == 1:
        return said[0] in written
    wanted = list(pairwise(said))
    missing = [pair for pair in wanted if pair not in pairs]
    strict = any(
        word in _NEGATIONS or any(map(str.isdigit, word)) for pair in missing for word in pair
    )
    named = {
        token for word in sentence.split()[1:] if word[:1].isupper() for token in tokens(word)
    }
    few = bool(wanted) and len(missing) <= (1 - near) * len(wanted)
    return few and not strict and named <= set(written)


def _heading(document: Document) -> str:
    return str(document.metadata.get("heading") or document.metadata.get("title") or "")


def _with_heading(document: Document) -> str:
    return f"{_heading(document)}\n{document.page_content}"
