"""Read the settings of the middleware, and refuse what cannot work."""

from collections.abc import Collection, Mapping
from typing import Any, get_args

from langchain_core.runnables import Runnable

from langchain_feedback.integrations._langchain import init_chat_model
from langchain_feedback.judges.base import AnswerVerifier, chat_model, is_judge
from langchain_feedback.judges.offline import LexicalGroundednessChecker, SentenceHighlighter
from langchain_feedback.judges.two_steps import CheckAndHighlight
from langchain_feedback.judges.verifying import LLMVerifier
from langchain_feedback.nodes.abstention import AbstentionMessage

__all__ = ["abstention_texts", "check_budget", "check_word", "tool_names", "verifier_of"]

_NO_RETRIEVAL = "I have not looked this up in the documents, so I will not answer it."


def verifier_of(
    given: AnswerVerifier | Runnable[Any, Any] | str, id_field: str | None
) -> AnswerVerifier | Runnable[Any, Any]:
    """Make the verifier from a verifier, a chat model, its name, or the word `offline`."""
    if given == "offline":
        return CheckAndHighlight(
            LexicalGroundednessChecker(), SentenceHighlighter(id_field=id_field)
        )
    if isinstance(given, str):
        try:
            given = init_chat_model(given)
        except (ValueError, ImportError) as error:
            msg = f"verifier={given!r} is neither 'offline' nor a chat model: {error}"
            raise ValueError(msg) from error
    if is_judge(given, AnswerVerifier):
        return given
    return LLMVerifier(chat_model(given, "verifier", kind="AnswerVerifier"), id_field=id_field)


def abstention_texts(abstention: AbstentionMessage | None) -> AbstentionMessage:
    """Add the text of the one reason that only an agent has."""
    if abstention is None or isinstance(abstention, Mapping):
        return {"no_retrieval": _NO_RETRIEVAL, **(abstention or {})}
    return abstention


def tool_names(given: Collection[str] | None) -> frozenset[str] | None:
    """Return the names of tools as a set."""
    if isinstance(given, str):
        msg = f"retrieval_tools must be a list of names, got {given!r}"
        raise TypeError(msg)
    return None if given is None else frozenset(given)


def check_budget(**budgets: int) -> None:
    """Refuse a negative number."""
    for name, value in budgets.items():
        if value < 0:
            msg = f"{name} must not be negative, got {value!r}"
            raise ValueError(msg)


def check_word(name: str, value: str, words: Any) -> None:
    """Refuse a word that is not one of a `Literal`."""
    if value not in get_args(words):
        expected = " or ".join(map(repr, get_args(words)))
        msg = f"{name} must be {expected}, got {value!r}"
        raise ValueError(msg)
