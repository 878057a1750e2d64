"""The token that is issued with a trace, for whoever asks."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from langchain_core.runnables import RunnableConfig

from langchain_feedback.traces import asker_of

if TYPE_CHECKING:
    from langchain_feedback.tokens import FeedbackTokens

__all__ = ["issuer"]

logger = logging.getLogger(__name__)


def issuer(
    tokens: "FeedbackTokens | None",
) -> Callable[[str, RunnableConfig], dict[str, str]]:
    """Return what makes the update with the token of a trace; an empty one without `tokens`.

    A trace id of somebody's own that is no UUID has an empty token, and the log says so once.
    """
    said = False

    def token_for(trace_id: str, config: RunnableConfig) -> dict[str, str]:
        nonlocal said
        if tokens is None:
            return {}
        user, session = asker_of(config.get("metadata") or {})
        # As the store names who speaks.
        asker = user or (f"session:{session}" if session else None)
        try:
            return {"feedback_token": tokens.issue(trace_id, actor=asker)}
        except ValueError as error:
            if not said:
                said = True
                logger.warning("This answer has no feedback token: %s", error)
            return {"feedback_token": ""}

    return token_for
