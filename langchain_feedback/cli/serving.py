"""`langchain-feedback serve`: the review pages and the signals endpoint, on this machine."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from langchain_feedback.cli.shared import DATABASE, Database, Namespace, told, url_of
from langchain_feedback.errors import MissingExtraError
from langchain_feedback.tokens import FeedbackTokens

__all__ = ["serve"]

_LOCAL = ("127.0.0.1", "localhost", "::1")


def serve(
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8970,
    database: Database = DATABASE,
    namespace: Namespace = "default",
    owners: Annotated[
        Path | None, typer.Option(help="Who owns which document: a TOML file.")
    ] = None,
) -> None:
    """Serve the review pages, and the endpoint that browsers send signals to."""
    with told():
        tokens = FeedbackTokens.from_env()
        if tokens is None and host not in _LOCAL:
            msg = (
                f"On {host} others could reach the pages: set LANGCHAIN_FEEDBACK_KEYS first, and "
                "invite reviewers with `langchain-feedback loop invite NAME`. A key: "
                'python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
            raise ValueError(msg)
        try:
            import uvicorn  # noqa: PLC0415  an extra

            from langchain_feedback.loop.owners import Owners  # noqa: PLC0415
            from langchain_feedback.server.app import create_app  # noqa: PLC0415
            from langchain_feedback.store.feedback_store import FeedbackStore  # noqa: PLC0415
        except ImportError as error:
            msg = f'The pages need {error.name}. Run: pip install "langchain-feedback[server]"'
            raise MissingExtraError(msg) from error
        known = None if owners is None else Owners.from_toml(owners)
        with FeedbackStore(url_of(database), namespace=namespace) as store:
            app = create_app(store, tokens=tokens, owners=known)
            shown = f"[{host}]" if ":" in host else host
            words = f"The review queue is at http://{shown}:{port}/queue (Ctrl-C ends it)"
            Console(stderr=True).print(Text(words, "bold"))
            uvicorn.run(app, host=host, port=port, log_level="warning", server_header=False)
