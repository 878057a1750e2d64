"""The one message for a missing package of the `local` extra."""

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_feedback.errors import MissingExtraError

__all__ = ["local_extra"]


@contextmanager
def local_extra() -> Iterator[None]:
    """Turn an `ImportError` in the block into a message that says what to install.

    Raises:
        MissingExtraError: An import in the block failed.
    """
    try:
        yield
    except ImportError as error:
        msg = (
            f"Reading and searching your own files needs a package that is not installed "
            f'({error}). Run: pip install "langchain-feedback[local]"'
        )
        raise MissingExtraError(msg) from error
