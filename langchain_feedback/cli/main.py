"""The entry point: it says what to install where the command line's extra is missing."""

import io
import sys

__all__ = ["run"]


def run() -> None:
    """Run `langchain-feedback`."""
    try:
        from langchain_feedback.cli.commands import app  # noqa: PLC0415  an extra
    except ImportError as error:
        sys.stderr.write(
            f"The command line needs a package that is not installed: {error.name}. "
            'Run: pip install "langchain-feedback[cli]"\n'
        )
        sys.exit(2)
    # A terminal that cannot show a character gets a mark for it, not a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()
