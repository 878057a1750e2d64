"""What `module:factory` names on the command line, made; its failures are told in one line."""

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from langchain_feedback.errors import LangChainFeedbackError

__all__ = ["load", "where"]


def load(path: str, option: str = "--app", *, folder: Path | None = None) -> Any:
    """Make what `module:factory` names.

    Args:
        path: The module, and what it calls the thing or the function that makes it.
        option: Where that was given, for messages.
        folder: Where the module may lie beside those that are installed; None: the working
            folder.

    Raises:
        ValueError: If there is no such thing, or it cannot be made.
        LangChainFeedbackError: As the factory raises it.
    """
    module, _, factory = path.partition(":")
    if not module or not factory:
        msg = f"{option} is module:factory, such as my_app:make; got {path!r}"
        raise ValueError(msg)
    folder = (folder or Path.cwd()).absolute()
    sys.path.insert(0, str(folder))  # as `python -m` does
    try:
        named = getattr(importlib.import_module(module), factory)
        # A compiled graph or a retriever is there already; a function makes one.
        is_made = hasattr(named, "invoke") or not callable(named)
        return named if is_made else named()
    except LangChainFeedbackError:
        raise
    except Exception as error:  # whatever other people's code raises
        told = str(error)
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            told += f" in {folder}, and none is installed"
        elif not isinstance(error, ImportError | AttributeError):
            told = f"{type(error).__name__}: {told}"
        msg = f"{option} {path}: {told}{where(error)}"
        raise ValueError(msg) from error


def where(error: BaseException) -> str:
    """Return in which line of which file an error came up, in brackets, or nothing."""
    if isinstance(error, SyntaxError):
        return ""  # it says so itself
    frames = traceback.extract_tb(error.__traceback__)
    others = [one for one in frames if not _is_loading(one.filename)]
    return f" ({Path(others[-1].filename).name}, line {others[-1].lineno})" if others else ""


def _is_loading(filename: str) -> bool:
    return filename in (__file__, importlib.__file__) or filename.startswith("<frozen")
