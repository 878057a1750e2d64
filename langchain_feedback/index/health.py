"""Whether an index is still what it was: its new chunks, its writes, its sources, its answers.

Nothing is written and nothing is repaired: each check says what it found, on which figures, and
what to do. What an index does not give the data for is skipped, with the reason.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from langchain_core.runnables.config import run_in_executor

from langchain_feedback.index._health.approved import check_approved
from langchain_feedback.index._health.base import Look
from langchain_feedback.index._health.coverage import check_coverage
from langchain_feedback.index._health.embedder import check_embedder
from langchain_feedback.index._health.gated import check_gated_share
from langchain_feedback.index._health.known import check_known
from langchain_feedback.index._health.leftovers import check_leftovers
from langchain_feedback.index._health.questions import check_abstentions, check_top_scores
from langchain_feedback.index._health.records import HealthCheck, IndexHealth
from langchain_feedback.index._health.sources import check_sources
from langchain_feedback.index._health.version import check_version
from langchain_feedback.index._health.writes import check_unfinished, check_written

if TYPE_CHECKING:
    from langchain_feedback.index.managed import ManagedIndex
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["CHECKS", "HealthCheck", "IndexHealth", "acheck_health", "check_health"]

logger = logging.getLogger(__name__)

CHECKS: Final[Mapping[str, Callable[[Look], HealthCheck]]] = {
    "known": check_known,
    "gated_share": check_gated_share,
    "coverage": check_coverage,
    "embedder": check_embedder,
    "version": check_version,
    "ledger": check_written,
    "unfinished_writes": check_unfinished,
    "leftovers": check_leftovers,
    "questions": check_approved,
    "silent_sources": check_sources,
    "top_score": check_top_scores,
    "abstentions": check_abstentions,
}
"""The checks by name, in the order in which they are done."""


def check_health(
    store: "FeedbackStore",
    index: "ManagedIndex",
    *,
    window: timedelta = timedelta(hours=24),
    base: timedelta = timedelta(days=28),
    asked: timedelta = timedelta(days=7),
    max_silence: timedelta = timedelta(days=14),
    on_finding: Callable[[HealthCheck], object] | None = None,
    now: datetime | None = None,
) -> IndexHealth:
    """Look at an index, and tell what is wrong with it.

    What is an alarm, what else is a finding, and what a check needs:

    - `known`. Nobody wrote under the index's name, and there is no catalog: a wrong name, a wrong
      namespace, or an index that is new.
    - `gated_share`, of the catalog and the scores. Alarm: more junk among new chunks than before,
      by Fisher's exact p < 0.005, and by 2 points.
    - `coverage`, of the catalog, else of the ledger. Less than 95 % of the chunks are scored.
    - `embedder`, of the registry. Alarm: another one than the active version was made with.
      With `open_version` it is that of the active version as it is opened.
    - `version`, of the registry and `open_version`. Alarm: the active version cannot be opened.
    - `ledger`, of `IndexWriter`. Alarm: chunks that were written are not in the vector store, or
      have another text.
    - `unfinished_writes`, of `IndexWriter`. A write began and did not end, and none is at work.
    - `leftovers`, of `IndexWriter`. Chunks are there that should be gone, or that it never wrote.
    - `questions`, of the fold-back. Alarm: what was approved is not in its index.
    - `silent_sources`, of the catalog. Neither a sync nor an answer saw any chunk of a source.
      Alarm: nor of any other one.
    - `top_score`, of traces ranked by a policy with a `score_key`. Alarm: other best scores than
      before, by Kolmogorov-Smirnov's p < 0.001, a distance of 0.1 and 500 searches a side.
    - `abstentions`, of traces that a graph recorded. Alarm: more questions without an answer,
      by the test of `gated_share`.

    An alarm is about a change: junk that stays is part of the base after `base`. How much there
    is in all stands in the figures of `coverage`. Times are counted back from `now`, so there
    are no days that a late job could miss, and nothing has to be kept for the base: it is worked
    out from the catalog and the scores, so it is there at once after the rules have changed and
    the corpus is scored anew. 100,000 chunks in SQLite took 1.0 s of processor time, and to
    ask an `InMemoryVectorStore` for all of them 1.7 s more (`benchmarks/index_drift.py`).

    Args:
        store: Whose database, and whose namespace.
        index: The index.
        window: How young a chunk is that counts as new.
        base: How long before the new ones, or the late questions, others are compared with them.
        asked: How late a question is that counts as late. A week, since weekends differ.
        max_silence: How long a source may go unseen.
        on_finding: Told of each finding, alarms first: it may send it somewhere. An error in it
            is a check that failed, by the name of `on_finding`.
        now: From when these times are counted back; None: from this instant.

    Returns:
        Every check. It raises nothing for what cannot be checked: such a check has `failed`, and
        `exit_code` is 2.

    Raises:
        ValueError: If a time is not above 0, or `now` has no zone.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_feedback import FeedbackStore
        >>> from langchain_feedback.index.catalog import ChunkCatalog
        >>> from langchain_feedback.index.managed import ManagedIndex
        >>> store = FeedbackStore("sqlite://")
        >>> new = [Document("Refunds take 14 days.", metadata={"source": "faq.md"})]
        >>> ChunkCatalog(store).sync(new).new != ()
        True
        >>> health = check_health(store, ManagedIndex())
        >>> print(health.get("coverage"))
        finding coverage: 0 of 1 chunks are scored, 0 of them gated; ...
        >>> health.exit_code, health.get("ledger").why
        (1, 'the index gives no vector store: `ManagedIndex(vector_store=...)`')
    """
    times = {"window": window, "base": base, "asked": asked, "max_silence": max_silence}
    for name, time in times.items():
        if time <= timedelta():
            msg = f"{name} must be above 0, got {time!r}"
            raise ValueError(msg)
    at = now or datetime.now(UTC)
    if at.tzinfo is None:
        msg = f"now needs a zone, got {now!r}"
        raise ValueError(msg)
    look = Look(store, index, at, window, base, asked, max_silence)
    checks = tuple(_done(name, partial(check, look)) for name, check in CHECKS.items())
    health = IndexHealth(namespace=store.namespace, index=index.name, at=at, checks=checks)
    if on_finding is None:
        return health
    return _told(health, on_finding)


async def acheck_health(
    store: "FeedbackStore",
    index: "ManagedIndex",
    *,
    window: timedelta = timedelta(hours=24),
    base: timedelta = timedelta(days=28),
    asked: timedelta = timedelta(days=7),
    max_silence: timedelta = timedelta(days=14),
    on_finding: Callable[[HealthCheck], object] | None = None,
    now: datetime | None = None,
) -> IndexHealth:
    """Do as `check_health`, without blocking the event loop."""
    return await run_in_executor(
        None,
        check_health,
        store,
        index,
        window=window,
        base=base,
        asked=asked,
        max_silence=max_silence,
        on_finding=on_finding,
        now=now,
    )


def _done(name: str, check: Callable[[], HealthCheck]) -> HealthCheck:
    try:
        return check()
    except Exception as error:  # noqa: BLE001  the other checks are no worse for it
        logger.warning("The health check %r could not be done: %r", name, error)
        return HealthCheck(name=name, status="failed", why=f"{type(error).__name__}: {error}")


def _told(health: IndexHealth, on_finding: Callable[[HealthCheck], object]) -> IndexHealth:
    failed = []
    for finding in health.findings:
        try:
            on_finding(finding)
        except Exception as error:  # noqa: BLE001  the findings are no less true for it
            said = f"of {finding.name!r} nobody was told: {type(error).__name__}: {error}"
            failed.append(HealthCheck(name="on_finding", status="failed", why=said))
    return IndexHealth(
        namespace=health.namespace,
        index=health.index,
        at=health.at,
        checks=(*health.checks, *failed),
    )
