"""`langchain-feedback index init`: the store that every other command needs."""

from contextlib import closing

from langchain_feedback.cli.index_shared import watched
from langchain_feedback.cli.shared import (
    DATABASE,
    Database,
    Json,
    as_url,
    print_json,
    say,
    without_password,
)

__all__ = ["init"]


def init(database: Database = DATABASE, as_json: Json = False) -> None:
    """Make the feedback store, where there is none yet; one that is there is left alone.

    `FeedbackStore(url).setup()` does the same, and so does the first thing
    that an app records.

    Example: langchain-feedback index init --database feedback.db
    """
    from langchain_feedback.store.feedback_store import FeedbackStore  # noqa: PLC0415
    from langchain_feedback.store.transactions import is_made  # noqa: PLC0415

    with watched(), closing(FeedbackStore(as_url(database))) as store:
        is_there = is_made(store)
        if not is_there:
            store.setup()
    shown = without_password(database)
    if as_json:
        print_json({"database": shown, "made": not is_there})
    elif is_there:
        say(f"{shown} is there already: nothing was changed.", "dim")
    else:
        say(f"{shown} is a feedback store now.", "bold green")
