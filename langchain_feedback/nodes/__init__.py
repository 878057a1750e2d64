"""Node factories: each makes one step for your own graph.

Use them as `nodes.grade_documents(model)`: bare names would shadow the functions
of a graph that has a `generate` or a `retrieve` of its own.
"""

from langchain_feedback.nodes.abstention import abstain
from langchain_feedback.nodes.generation import generate
from langchain_feedback.nodes.grading import grade_documents
from langchain_feedback.nodes.keys import StateKeys
from langchain_feedback.nodes.recording import record_answer
from langchain_feedback.nodes.retrieval import begin, retrieve
from langchain_feedback.nodes.rewriting import rewrite_question
from langchain_feedback.nodes.routing import (
    route_after_begin,
    route_after_grading,
    route_after_verification,
)
from langchain_feedback.nodes.streams import hold_back_drafts
from langchain_feedback.nodes.verification import (
    check_groundedness,
    highlight_sources,
    verify_answer,
)

__all__ = [
    "StateKeys",
    "abstain",
    "begin",
    "check_groundedness",
    "generate",
    "grade_documents",
    "highlight_sources",
    "hold_back_drafts",
    "record_answer",
    "retrieve",
    "rewrite_question",
    "route_after_begin",
    "route_after_grading",
    "route_after_verification",
    "verify_answer",
]
