"""First stages of grading that ask no chat model: they may drop the far tail, no more.

Each says `no` to chunks that score under a threshold and `unknown` to all others.
There is no `yes`: no score was found over which chunks are reliably relevant. The
best chunk always stays `unknown`, so a first stage never empties the context.

Put one before a model with `judges.staging.StagedGrader`, first with `shadow=True`.
What was measured stands in each docstring; `tests/unit_tests/judges/test_first_stage.py`
measures it again (`MEASURE_ALL=1 pytest -rP -k measured` for all of it).
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor

from langchain_feedback.documents import chunk_key
from langchain_feedback.judges.base import DocumentGrader, Grade, GradingRequest
from langchain_feedback.judges.grading import make_grade
from langchain_feedback.judges.verdict import Verdict

__all__ = ["CrossEncoder", "CrossEncoderGrader", "EmbeddingsGrader"]


@runtime_checkable
class CrossEncoder(Protocol):
    """What is asked of a cross-encoder: LangChain's `BaseCrossEncoder` has it."""

    def score(self, text_pairs: list[tuple[str, str]]) -> Sequence[float]:
        """Return one score for each pair of question and text; more is more relevant."""


class EmbeddingsGrader(DocumentGrader):
    """Drops the chunks whose embedding is far from the question's, by cosine.

    The threshold has no default, since each embedder has its own scale: take it from
    `calibration.agreement` over outputs in shadow mode. Measured on FeedbackQA (2,150 questions,
    598 passages, all-MiniLM-L6-v2, the 8 nearest passages of each question; lost = of
    the passages that answer, right = share of the dropped that do not answer):

    | threshold | of the others dropped | lost | right |
    | --- | --- | --- | --- |
    | .25 | 0.7 % | 0.0 % | 100 % |
    | .30 | 1.6 % | 0.2 % | 98.8 % |
    | .35 | 3.3 % | 0.5 % | 98.1 % |
    | .40 | 6.8 % | 1.0 % | 98.2 % |
    | .50 | 20.9 % | 4.3 % | 97.6 % |

    So where the retriever already ranks by the same embeddings, little is left to
    drop. Each chunk is embedded anew in each call, unless `embeddings` has a cache.

    Args:
        embeddings: Any LangChain embeddings.
        threshold: The cosine under which a chunk is dropped, in [-1, 1].
        id_field: The metadata field that holds a chunk's id, if any.

    Raises:
        TypeError: If `embeddings` is none.
        ValueError: If `threshold` is out of range.

    Example:
        >>> class Letters(Embeddings):
        ...     def embed_query(self, text):
        ...         return [float(text.lower().count(letter)) for letter in "refundky"]
        ...     def embed_documents(self, texts):
        ...         return [self.embed_query(text) for text in texts]
        >>> chunks = [Document("A refund.", id="a"), Document("Kyky yy.", id="b")]
        >>> grades = EmbeddingsGrader(Letters(), threshold=0.3).invoke(
        ...     {"question": "Refund?", "documents": chunks})
        >>> [(grade["verdict"], grade["reason"]) for grade in grades]
        [('unknown', 'cosine 1.00'), ('no', 'cosine 0.00 is under 0.3')]
    """

    def __init__(
        self, embeddings: Embeddings, *, threshold: float, id_field: str | None = None
    ) -> None:
        if not isinstance(embeddings, Embeddings):
            msg = f"embeddings must be LangChain Embeddings, got {embeddings!r}"
            raise TypeError(msg)
        if not -1 <= threshold <= 1:
            msg = f"threshold is a cosine and must be in [-1, 1], got {threshold!r}"
            raise ValueError(msg)
        self.embeddings = embeddings
        self.threshold = threshold
        self.id_field = id_field

    def judge(self, request: GradingRequest, config: RunnableConfig) -> list[Grade]:  # noqa: ARG002
        """Embed the question and the chunks, and drop what is far."""
        documents = request["documents"]
        if not documents:
            return []
        question = self.embeddings.embed_query(request["question"])
        texts = self.embeddings.embed_documents(_texts(documents))
        return self._grades(documents, question, texts)

    async def ajudge(self, request: GradingRequest, config: RunnableConfig) -> list[Grade]:  # noqa: ARG002
        """Do the same without blocking."""
        documents = request["documents"]
        if not documents:
            return []
        question = await self.embeddings.aembed_query(request["question"])
        texts = await self.embeddings.aembed_documents(_texts(documents))
        return self._grades(documents, question, texts)

    def _grades(self, documents: list[Document], question: Any, texts: Any) -> list[Grade]:
        scores = [_cosine(question, text) for text in texts]
        return _drop_far(documents, scores, self.threshold, "cosine", self.id_field)


class CrossEncoderGrader(DocumentGrader):
    """Drops the chunks that a cross-encoder scores far below all relevant ones.

    Measured with ms-marco-MiniLM-L-12-v2 (int8) and the default threshold. FeedbackQA, the
    8 nearest passages of every 14th question: a `no` was right in 61 of 61 cases, 6 % of
    the others were dropped, 0 of 138 passages that answer were lost; of 150 questions
    drawn at random: 73 of 74, 7 %, 1 of 131. Of 310 pairs that people agreed on, it
    dropped 26 of 176 bad and 0 of 134 good ones. A handbook of 12 short passages: right
    in 34 of 36 cases (94 %), but 2 of 8 passages were lost, for a question in other
    words than theirs.

    It reads a chunk's text, not its heading: of 500 FeedbackQA passages that answer, 7
    scored under -10 (1.4 %), with their title before the text 1 (and a third as many others
    were dropped). Where your chunks name their subject only in a heading, put it into
    their text. The model is English; others need `shadow=True` and another threshold.

    Args:
        cross_encoder: Any LangChain cross-encoder, or what has its `score`. It runs in
            an executor where a graph runs async.
        threshold: The score under which a chunk is dropped, on the model's own scale.
            The default is for the raw scores (logits) of the ms-marco-MiniLM models;
            on a scale from 0 to 1 it drops nothing.
        id_field: The metadata field that holds a chunk's id, if any.

    Raises:
        TypeError: If `cross_encoder` has no `score`.
        ValueError: If `threshold` is not finite.

    Example:
        >>> class Shared:
        ...     def score(self, text_pairs):
        ...         return [0.0 if "refund" in text else -11.0 for _, text in text_pairs]
        >>> chunks = [Document("A refund takes 14 days."), Document("Keys rotate.")]
        >>> grades = CrossEncoderGrader(Shared()).invoke(
        ...     {"question": "How long does it take?", "documents": chunks})
        >>> [(grade["verdict"], grade["reason"]) for grade in grades]
        [('unknown', 'score 0.00'), ('no', 'score -11.00 is under -10.0')]
    """

    def __init__(
        self,
        cross_encoder: CrossEncoder,
        *,
        threshold: float = -10.0,
        id_field: str | None = None,
    ) -> None:
        if not isinstance(cross_encoder, CrossEncoder):
            msg = f"cross_encoder must have a method `score`, got {cross_encoder!r}"
            raise TypeError(msg)
        if not math.isfinite(threshold):
            msg = f"threshold must be finite, got {threshold!r}"
            raise ValueError(msg)
        self.cross_encoder = cross_encoder
        self.threshold = threshold
        self.id_field = id_field

    def judge(self, request: GradingRequest, config: RunnableConfig) -> list[Grade]:  # noqa: ARG002
        """Score each chunk with the question, and drop what is far."""
        pairs = _pairs(request)
        return self._grades(request, self.cross_encoder.score(pairs) if pairs else [])

    async def ajudge(self, request: GradingRequest, config: RunnableConfig) -> list[Grade]:
        """Do the same in an executor: a cross-encoder computes for a long while."""
        pairs = _pairs(request)
        score = self.cross_encoder.score
        return self._grades(request, await run_in_executor(config, score, pairs) if pairs else [])

    def _grades(self, request: GradingRequest, scores: Sequence[float]) -> list[Grade]:
        documents, threshold = request["documents"], self.threshold
        return _drop_far(documents, scores, threshold, "score", self.id_field)


def _texts(documents: list[Document]) -> list[str]:
    return [document.page_content for document in documents]


def _pairs(request: GradingRequest) -> list[tuple[str, str]]:
    return [(request["question"], text) for text in _texts(request["documents"])]


def _cosine(one: Any, other: Any) -> float:
    """Return the cosine, or NaN where a vector has no direction."""
    a, b = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length else math.nan


def _drop_far(
    documents: list[Document],
    scores: Sequence[float],
    threshold: float,
    name: str,
    id_field: str | None,
) -> list[Grade]:
    """Say `no` to what is under the threshold, but for the best chunk."""
    values = [float(score) for score in scores]
    if len(values) != len(documents):
        msg = f"{len(values)} scores came back for {len(documents)} chunks"
        raise ValueError(msg)
    # NaN compares with nothing: such a chunk is never dropped, and never the best.
    best = max((value for value in values if not math.isnan(value)), default=math.nan)
    first_best = values.index(best) if best in values else None
    return [
        _grade(chunk_key(document, id_field), value, threshold, name, is_best=i == first_best)
        for i, (document, value) in enumerate(zip(documents, values, strict=True))
    ]


def _grade(key: str, value: float, threshold: float, name: str, *, is_best: bool) -> Grade:
    reason = f"{name} {value:.2f}"
    if not value < threshold:
        return make_grade(key, Verdict.UNKNOWN, reason)
    if is_best:
        kept = f"{reason} is under {threshold}, but the best here"
        return make_grade(key, Verdict.UNKNOWN, kept)
    return make_grade(key, Verdict.NO, f"{reason} is under {threshold}")
