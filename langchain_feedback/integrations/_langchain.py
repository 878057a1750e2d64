"""The parts of `langchain` that agents need, or a message that says what to install."""

from langchain_feedback.errors import MissingExtraError

try:
    from langchain.agents.middleware import (
        AgentMiddleware,
        AgentState,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
    )
    from langchain.agents.middleware.types import PrivateStateAttr
    from langchain.chat_models import init_chat_model
except ImportError as error:
    msg = (
        f"Middleware for agents needs a package that is not installed ({error}). "
        'Run: pip install "langchain-feedback[agents]"'
    )
    raise MissingExtraError(msg) from error

__all__ = [
    "AgentMiddleware",
    "AgentState",
    "ExtendedModelResponse",
    "ModelRequest",
    "ModelResponse",
    "PrivateStateAttr",
    "init_chat_model",
]
