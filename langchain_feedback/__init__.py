"""Parts that make a RAG application reliable: it quotes, checks itself, and abstains.

Everything here is loaded on first use, so that importing one part does not cost
the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_feedback import nodes
    from langchain_feedback.graph import create_reliable_rag, reliable_rag_builder
    from langchain_feedback.index.swappable import SwappableRetriever
    from langchain_feedback.judges.grading import LLMDocumentGrader
    from langchain_feedback.judges.groundedness import LLMGroundednessChecker
    from langchain_feedback.judges.highlighting import LLMHighlighter
    from langchain_feedback.judges.verifying import LLMVerifier
    from langchain_feedback.nodes.keys import StateKeys
    from langchain_feedback.quotes.locate import locate_quote
    from langchain_feedback.ranking.linear import LinearRanker
    from langchain_feedback.ranking.policies import (
        AverageRating,
        KernelBelief,
        RankingPolicy,
        WilsonFusion,
    )
    from langchain_feedback.retrievers.cosine import CosineFeature
    from langchain_feedback.retrievers.dartboard import DartboardCompressor, DartboardRetriever
    from langchain_feedback.retrievers.feedback import FeedbackRetriever
    from langchain_feedback.retrievers.interleaved import InterleavedRetriever
    from langchain_feedback.retrievers.split import SplitRetriever
    from langchain_feedback.store.feedback_store import FeedbackStore
    from langchain_feedback.tokens import FeedbackTokens
    from langchain_feedback.traces import new_trace_id, trace_id_of

__all__ = [
    "AverageRating",
    "CosineFeature",
    "DartboardCompressor",
    "DartboardRetriever",
    "FeedbackRetriever",
    "FeedbackStore",
    "FeedbackTokens",
    "InterleavedRetriever",
    "KernelBelief",
    "LLMDocumentGrader",
    "LLMGroundednessChecker",
    "LLMHighlighter",
    "LLMVerifier",
    "LinearRanker",
    "RankingPolicy",
    "SplitRetriever",
    "StateKeys",
    "SwappableRetriever",
    "WilsonFusion",
    "create_reliable_rag",
    "locate_quote",
    "new_trace_id",
    "nodes",
    "reliable_rag_builder",
    "trace_id_of",
]

_HOMES = {
    "AverageRating": "ranking.policies",
    "CosineFeature": "retrievers.cosine",
    "DartboardCompressor": "retrievers.dartboard",
    "DartboardRetriever": "retrievers.dartboard",
    "FeedbackRetriever": "retrievers.feedback",
    "FeedbackStore": "store.feedback_store",
    "FeedbackTokens": "tokens",
    "InterleavedRetriever": "retrievers.interleaved",
    "KernelBelief": "ranking.policies",
    "LLMDocumentGrader": "judges.grading",
    "LLMGroundednessChecker": "judges.groundedness",
    "LLMHighlighter": "judges.highlighting",
    "LLMVerifier": "judges.verifying",
    "LinearRanker": "ranking.linear",
    "RankingPolicy": "ranking.policies",
    "SplitRetriever": "retrievers.split",
    "StateKeys": "nodes.keys",
    "SwappableRetriever": "index.swappable",
    "WilsonFusion": "ranking.policies",
    "create_reliable_rag": "graph",
    "locate_quote": "quotes.locate",
    "new_trace_id": "traces",
    "reliable_rag_builder": "graph",
    "trace_id_of": "traces",
}


def __getattr__(name: str) -> Any:
    if name == "nodes":
        value: Any = import_module(f"{__name__}.nodes")
    elif home := _HOMES.get(name):
        value = getattr(import_module(f"{__name__}.{home}"), name)
    else:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    # Kept, so that the next access does not come here.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
