"""Judges and a generator that work without a model: lexical, fast, and modest.

For demos, tests, and as a first stage before a model. They see words, not meaning:
a swapped fact inside a copied sentence is invisible to them. What was measured
stands in each docstring; nothing more is claimed.
"""

from collections.abc import Iterable

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from langchain_feedback.documents import chunk_key, is_derived
from langchain_feedback.judges._lexical import Idf, Passage, Weigher, best_passage, is_near_copy
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
from langchain_feedback.judges.citing import AnswerSpan, cite
from langchain_feedback.judges.grading import make_grade
from langchain_feedback.judges.groundedness import make_groundedness
from langchain_feedback.judges.verdict import Verdict
from langchain_feedback.words import content_words, inverse_document_frequency, sentence_spans

__all__ = [
    "ExtractiveGenerator",
    "LexicalGrader",
    "LexicalGroundednessChecker",
    "SentenceHighlighter",
    "corpus_idf",
]


class LexicalGrader(DocumentGrader):
    """Keeps a chunk of which one sentence holds enough of the question's content words.

    Words of the chunk's heading count with every sentence. The share is weighted by
    how rare each word is, where `idf` says so; a word that the corpus does not know
    weighs most, so a question about something else finds nothing. Measured with the
    default threshold on FeedbackQA and on software documentation: of the retrieved
    chunks that answer it kept 94 % and 62 % (the latter asked in words that mostly
    are not the document's), and for questions about the other corpus it kept
    something in 6 % and 11 % of the cases.

    Args:
        idf: Weight of each stem (see `corpus_idf`); None: all equal.
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
        self, *, idf: Idf | None = None, threshold: float = 0.4, id_field: str | None = None
    ) -> None:
        if not 0 < threshold <= 1:
            msg = f"threshold must be in (0, 1], got {threshold!r}"
            raise ValueError(msg)
        self.threshold = threshold
        self.id_field = id_field
        self._weigh = Weigher(idf)

    def judge(self, request: GradingRequest, config: RunnableConfig) -> list[Grade]:  # noqa: ARG002
        """Grade each chunk by the words that its best sentence shares with the question."""
        wanted = set(content_words(request["question"]))
        return [self._grade(wanted, document) for document in request["documents"]]

    def _grade(self, wanted: set[str], document: Document) -> Grade:
        text, heading = document.page_content, content_words(_heading(document))
        share = max(
            (
                self._weigh.share(wanted & {*heading, *content_words(text[start:end])}, wanted)
                for start, end in sentence_spans(text)
            ),
            default=0.0,
        )
        verdict = Verdict.YES if share >= self.threshold else Verdict.NO
        reason = f"its best sentence holds {share:.2f} of the question's words, by weight"
        return make_grade(chunk_key(document, self.id_field), verdict, reason)


class LexicalGroundednessChecker(GroundednessChecker):
    """Two rules that hold, and `unknown` for everything between them.

    A sentence of two content words or more that are mostly absent from the chunks
    (weighted coverage under .30) is not grounded. A near copy (95 % of its word pairs
    stand in one chunk, every pair with a number or a negation does, no negation is
    left out, no name is missing) is grounded. Measured on BEGIN (430 pairs): the
    first rule was right in 120 of the 121 cases that it decided, the second in all of
    38; on minimally edited summaries (SummEdits) neither decides anything of use.

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

    def __init__(self, *, idf: Idf | None = None) -> None:
        self._weigh = Weigher(idf)

    def judge(self, request: CheckingRequest, config: RunnableConfig) -> Groundedness:  # noqa: ARG002
        """Judge the answer sentence by sentence; the worst sentence decides."""
        answer = request["answer"]
        sources = [document.page_content for document in request["documents"]]
        sentences = [answer[start:end] for start, end in sentence_spans(answer)]
        if not sentences or not any(map(str.strip, sources)):
            return make_groundedness("no", reason="There is no answer, or nothing to rest on.")
        held = {word for source in sources for word in content_words(source)}
        verdicts = {sentence: self._sentence(sentence, sources, held) for sentence in sentences}
        unsupported = [text for text, verdict in verdicts.items() if verdict is Verdict.NO]
        if unsupported:
            return make_groundedness(
                Verdict.NO, reason="A sentence is far from every chunk.", unsupported=unsupported
            )
        if all(verdict is Verdict.YES for verdict in verdicts.values()):
            return make_groundedness(Verdict.YES, reason="Every sentence is a near copy.")
        return make_groundedness(Verdict.UNKNOWN, reason="Neither a copy nor far from the chunks.")

    def _sentence(self, sentence: str, sources: list[str], held: set[str]) -> Verdict:
        wanted = set(content_words(sentence))
        # "Yes." and "Sure!" stand in no source and claim nothing.
        says_something = len(wanted) >= _CLAIM
        if says_something and self._weigh.share(held & wanted, wanted) < self.far:
            return Verdict.NO
        copied = any(is_near_copy(sentence, source, self.near) for source in sources)
        return Verdict.YES if copied else Verdict.UNKNOWN


class ExtractiveGenerator(AnswerGenerator):
    """Answers with passages of the chunks, word for word, picked by their words.

    A passage is the sentence that holds most of the question's words, by weight,
    with its two neighbors where there is room, since documents name a thing once
    and go on about it. A sentence of code or a bare label counts less. A second
    passage, of another chunk, is added where it holds words that the first lacks.

    Measured on 45 questions about software documentation, asked in other words:
    where the chunk that answers was among the four it was given (21), the answer
    was in the passages 11 times. A model does better; this one makes nothing up.

    Args:
        idf: Weight of each stem (see `corpus_idf`); None: all equal.
        max_words: Words in a passage, at least 1; one sentence may be longer.

    Raises:
        ValueError: If `max_words` is below 1.

    Example:
        >>> chunk = Document("A refund takes 14 days. It goes to the same card.")
        >>> ExtractiveGenerator().invoke({"question": "How long does a refund take?",
        ...     "documents": [chunk], "history": "", "unsupported": []})
        'A refund takes 14 days. It goes to the same card.'
    """

    def __init__(self, *, idf: Idf | None = None, max_words: int = 60) -> None:
        if max_words < 1:
            msg = f"max_words must be at least 1, got {max_words!r}"
            raise ValueError(msg)
        self.max_words = max_words
        self._weigh = Weigher(idf)

    def judge(self, request: GenerationRequest, config: RunnableConfig) -> str:  # noqa: ARG002
        """Pick the passages; an empty string where no sentence shares a word."""
        wanted = set(content_words(request["question"]))
        rejected = {" ".join(content_words(text)) for text in request["unsupported"]}
        found: list[tuple[float, int, Passage]] = []
        # What an answer said before is no source: it could never be verified.
        sources = [one for one in request["documents"] if not is_derived(one)]
        for rank, document in enumerate(sources):
            passage = best_passage(
                document.page_content,
                wanted,
                self._weigh,
                max_words=self.max_words,
                rejected=rejected,
            )
            if passage is not None:
                found.append((passage.score / (1 + _RANK_COST * rank), rank, passage))
        found.sort(key=lambda item: -item[0])
        picked = found[:1]
        for score, rank, passage in found[1:]:
            best, _, first = picked[0]
            if passage.held - first.held and score >= _SECOND * best:
                picked.append((score, rank, passage))
                break
        picked.sort(key=lambda item: item[1])
        return "\n\n".join(passage.text for _, _, passage in picked)


class SentenceHighlighter(Highlighter):
    """Cites each passage of the answer that stands word for word in a chunk.

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
        """Look each sentence up in the chunks; sentences in a row make one citation."""
        answer, documents = request["answer"], request["documents"]
        texts = {chunk_key(doc, self.id_field): doc.page_content for doc in documents}
        cited: list[Citation] = []
        for start, end in sentence_spans(answer):
            claim = AnswerSpan(answer[start:end], start, end)
            for citation in cite(claim.text, None, documents, claim=claim, id_field=self.id_field):
                text = texts[citation["chunk_id"]]
                follows = cited and _follows(cited[-1], citation, text)
                cited.append(_merged(cited.pop(), citation, text, answer) if follows else citation)
        return cited


_CLAIM = 2
_RANK_COST = 0.05
_SECOND = 0.7


def _merged(before: Citation, citation: Citation, text: str, answer: str) -> Citation:
    """Make one citation of two whose passages follow each other."""
    start, answer_start = before["start"], before["answer_start"]
    merged = citation.copy()
    merged["start"], merged["quote"] = start, text[start : citation["end"]]
    merged["answer_start"] = answer_start
    merged["claim"] = answer[answer_start : citation["answer_end"]]
    return merged


def _follows(before: Citation, citation: Citation, text: str) -> bool:
    between = text[before["end"] : citation["start"]]
    same = before["chunk_id"] == citation["chunk_id"] and before["end"] <= citation["start"]
    return same and not any(map(str.isalnum, between))


def corpus_idf(documents: Iterable[Document]) -> dict[str, float]:
    """Weigh each stem of a corpus by how rare it is in texts and headings.

    Example:
        >>> corpus_idf([Document("refund window"), Document("refund timing")])["refund"]
        1.0
    """
    return inverse_document_frequency(
        f"{_heading(document)}\n{document.page_content}" for document in documents
    )


def _heading(document: Document) -> str:
    return str(document.metadata.get("heading") or document.metadata.get("title") or "")
