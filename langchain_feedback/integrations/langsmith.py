"""LangSmith: signals of the store as feedback on the run of the answer, and feedback as ratings.

**Whose run.** A run is found by its metadata: `feedback_trace_id`, which a graph's calls and
callers of a `FeedbackRetriever` set, or `feedback_searched_for`, which runs below a
`FeedbackRetriever` carry by themselves. Feedback goes to the root of that run. So nothing has to
be handed from the answer to the rating, and another process can do the mirroring. Code that is
traced without LangChain names the trace with
`langsmith_extra={"metadata": {"feedback_trace_id": trace_id}}`.

**What is sent.** One feedback for what a person says of one thing, whose id follows from the
namespace, the trace, the person, the family of the signal and the target. What he says of it
later replaces it; a retraction empties it (score and comment go, the value is `"retracted"`).

| signal | feedback key | score | value |
| --- | --- | --- | --- |
| rating, thumbs of an answer | `rating` | (rating - 1) / 4; thumbs 1 or 0 | the rating; the signal's name |
| rating, thumbs of a source | `source_rating` | the same | the same |
| source_click, source_skipped | `click` | 1, 0 | the signal's name |
| correction | `correction` | none | the signal's name; the text is in `correction` |
| any other | its family | 1 | the signal's name |

Pins are about a question, not about a run, and are not sent. What is mirrored leaves `forget`'s
reach: delete it in LangSmith, too.

**What is imported.** A score becomes a rating, `1 + floor(4 share + 1/2)`, where the share runs
from 0 for the worst score of its key's scale to 1 for the best: with (0, 1), a 0 is a 1 and a 1
is a 5. Comments and corrections come along; a correction without a score becomes one here.
"""  # noqa: E501  a table row is one line

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from langchain_core.runnables.config import run_in_executor

from langchain_feedback.errors import StoreError
from langchain_feedback.integrations._langsmith_progress import Bookmark
from langchain_feedback.integrations._langsmith_pull import Pulled, pull
from langchain_feedback.integrations._langsmith_push import Push, Pushed
from langchain_feedback.store.feedback_store import FeedbackStore

if TYPE_CHECKING:
    from langsmith import Client

    from langchain_feedback.integrations._langsmith_api import LangSmithApi

__all__ = ["LangSmithBridge", "Pulled", "Pushed"]

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 600.0
_NAMESPACES = ("LANGSMITH", "LANGCHAIN")
_USER_SCORE = MappingProxyType({"user_score": (0.0, 1.0)})


class LangSmithBridge:
    """Mirrors signals to LangSmith and imports feedback from it, beside the answers.

    It follows the store's log of signals, so it sees what any process writes and loses nothing
    while LangSmith is away: how far it has come is kept in the store, and only what arrived is
    passed over. Several processes may run it; one at a time does the work. An answer or a rating
    never waits for it.

    It is off, and neither imports nor starts anything, unless a client is given or the
    environment has an API key and tracing on (`LANGSMITH_API_KEY`, `LANGSMITH_TRACING=true`).

    Args:
        store: Whose signals, in its namespace. Close it after the bridge.
        client: How to reach LangSmith; None: as the environment says.
        project: The name of the project that the runs are in; None: as for tracing.
        every_s: Seconds from one push to the next, after `start`.
        patience: For how long a signal waits for its run to appear.
        with_actor: Whether LangSmith is told who said it.
        extend_retention: Whether traces with feedback are kept for longer, as LangSmith does
            by default, which costs more.

    Raises:
        ValueError: If `every_s` is not above 0.

    Example:
        >>> bridge = LangSmithBridge(FeedbackStore("sqlite://"))
        >>> bridge.on  # nothing is configured here
        False
        >>> with bridge:  # pushes in the background, from here to the end of the block
        ...     pass
    """

    def __init__(
        self,
        store: FeedbackStore,
        client: "Client | None" = None,
        *,
        project: str | None = None,
        every_s: float = 30.0,
        patience: timedelta = timedelta(days=1),
        with_actor: bool = False,
        extend_retention: bool = False,
    ) -> None:
        if every_s <= 0:
            msg = f"every_s must be above 0, got {every_s!r}"
            raise ValueError(msg)
        self.store, self._project = store, project
        self.on = client is not None or _is_configured()
        """Whether it does anything."""
        self._client, self._every_s, self._patience = client, every_s, patience
        self._with_actor, self._extend_retention = with_actor, extend_retention
        self._turn, self._stop = threading.Lock(), threading.Event()
        self._opened: LangSmithApi | None = None
        self._thread: threading.Thread | None = None
        self._said: str | None = None

    # -- to LangSmith

    def push(self) -> Pushed:
        """Send what is new since the last push of any process; repeating it is harmless.

        Returns:
            What was done. A failure of LangSmith is its `error`, and logged once while it lasts.

        Raises:
            StoreError: If the store cannot be read or written.
        """
        if not self.on:
            return Pushed()
        with self._turn:
            done = self._pushed()
        if not done.busy:
            self._say("LangSmith gets the signals later: %s", done.error)
        return done

    def start(self) -> Self:
        """Push in the background, `every_s` seconds after the last time and less often on errors.

        Call it in each process that shall do it, after forking. Calling it twice is harmless.
        """
        if self.on and self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(
                target=self._keep_pushing, name="langsmith-bridge", daemon=True
            )
            self._thread.start()
        return self

    def close(self, timeout: float = 5.0) -> None:
        """End the background work with a last push, in this time or not at all.

        What did not arrive is sent by the next push of any process.

        Args:
            timeout: The longest wait, in seconds.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout)
            self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- from LangSmith

    def pull(
        self,
        since: datetime | timedelta,
        *,
        scores: Mapping[str, tuple[float, float]] = _USER_SCORE,
        sources: Sequence[str] = ("api", "app"),
    ) -> Pulled:
        """Import people's feedback on runs as ratings of the traces behind them.

        Importing it again adds nothing; what was changed in LangSmith since replaces what was
        imported. What was deleted there stays here. Feedback of LangSmith's own users is theirs
        (`langsmith:<user id>`), that of an application its asker's.

        Args:
            since: Feedback that was given since then, a time with a zone, or at this age at most.
            scores: The feedback keys to import, each with its worst and its best score.
            sources: From whom: `"api"` is an application, `"app"` LangSmith's own pages; there
                are `"model"` and `"auto_eval"`, too, which are no people.

        Returns:
            What was done.

        Raises:
            ValueError: If the time has no zone, the age is negative, or a scale is none.
            LangSmithError: If LangSmith cannot be read; what was imported before stays.
            StoreError: If the store cannot be read or written.
        """
        oldest = _instant_of(since)
        for key, (worst, best) in scores.items():
            if worst == best:
                msg = f"The scale of {key!r} has one score only, {worst!r}"
                raise ValueError(msg)
        return pull(self.store, self._api(), oldest, scores, sources) if self.on else Pulled()

    async def apush(self) -> Pushed:
        """Do as `push`, without blocking the event loop."""
        return await run_in_executor(None, self.push)

    async def apull(self, since: datetime | timedelta, **options: Any) -> Pulled:
        """Do as `pull`, without blocking the event loop."""
        return await run_in_executor(None, self.pull, since, **options)

    # -- how

    def _api(self) -> "LangSmithApi":
        if self._opened is None:
            # It imports LangSmith's client, and makes one.
            from langchain_feedback.integrations._langsmith_api import (  # noqa: PLC0415
                LangSmithApi,
            )

            self._opened = LangSmithApi(
                self._client, self._project, extend_retention=self._extend_retention
            )
        return self._opened

    def _pushed(self) -> Pushed:
        done = Pushed()
        try:
            api = self._api()
            bookmark = Bookmark(self.store, f"langsmith:{api.project}")
            with bookmark.held() as progress:
                if progress is None:
                    return Pushed(busy=True)
                Push(
                    self.store, api, bookmark, progress, done,
                    patience=self._patience, with_actor=self._with_actor,
                ).run()  # fmt: skip
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, nobody else may suffer from it
            done.error = f"{type(error).__name__}: {error}"
        return done

    def _say(self, text: str, error: str | None) -> None:
        """Log an error unless the last time was one of its kind; None: all went well."""
        kind = error and error.partition(":")[0]
        if kind and kind != self._said:
            logger.warning(text, error)
        self._said = kind

    def _keep_pushing(self) -> None:
        failures, stop = 0, self._stop
        while True:
            stopped = stop.is_set()
            try:
                failed = self.push().error is not None
            except Exception as error:  # noqa: BLE001
                failed = True
                message = f"{type(error).__name__}: {error}"
                self._say("The signals cannot be read for LangSmith: %s", message)
            if stopped:
                return
            failures = failures + 1 if failed else 0
            stop.wait(
                min(self._every_s * 2 ** min(failures, 10), max(_LONGEST_PAUSE_S, self._every_s))
            )


def _instant_of(since: datetime | timedelta) -> datetime:
    if isinstance(since, timedelta):
        if since < timedelta(0):
            msg = f"since must not be negative, got {since!r}"
            raise ValueError(msg)
        return datetime.now(UTC) - since
    if since.tzinfo is None:
        msg = f"since needs a zone, got the naive {since!r}"
        raise ValueError(msg)
    return since


def _is_configured() -> bool:
    """Whether the environment says where to, and that runs are sent there at all."""

    def said(name: str) -> str:
        return next(filter(None, (os.environ.get(f"{of}_{name}", "") for of in _NAMESPACES)), "")

    traces = said("TRACING_V2") or said("TRACING")
    return bool(said("API_KEY").strip()) and traces.strip().lower() == "true"
