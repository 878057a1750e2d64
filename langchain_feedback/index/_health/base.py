"""What every check is given, and how it tells what it found."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from langchain_feedback.index._health.records import HealthCheck, Severity
from langchain_feedback.index._managed.opening import opened

if TYPE_CHECKING:
    from langchain_feedback.index._versions.rows import IndexVersion
    from langchain_feedback.index.managed import ManagedIndex
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["NAMED", "Look", "clean", "days_of", "found", "skipped"]

NAMED = 5
"""How many of those that something is said of are named."""

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Look:
    """One look at one index."""

    store: "FeedbackStore"
    index: "ManagedIndex"
    now: datetime
    window: timedelta
    """What is new is this young at most."""
    base: timedelta
    """How long a time before is compared with it."""
    asked: timedelta
    """The same as `window`, for questions."""
    max_silence: timedelta

    @cached_property
    def searched(self) -> "tuple[IndexVersion | None, Any, str]":
        """The active version, what `open_version` made of it, and why it made nothing.

        All of it is None or empty where there is none, or the index opens none.
        """
        active = self.index.registry(self.store).active()
        if active is None or self.index.open_version is None:
            return active, None, ""
        return active, *opened(self.index.open_version, active)

    @property
    def namespace(self) -> str:
        """Whose chunks and questions."""
        return self.store.namespace


def clean(name: str, why: str, figures: Mapping[str, Any] | None = None) -> HealthCheck:
    """Make a check that found nothing."""
    return HealthCheck(name=name, why=why, figures=figures or {})


def found(
    name: str, severity: Severity, why: str, todo: str, figures: Mapping[str, Any]
) -> HealthCheck:
    """Make a check that found something."""
    return HealthCheck(name=name, severity=severity, why=why, todo=todo, figures=figures)


def skipped(name: str, why: str, figures: Mapping[str, Any] | None = None) -> HealthCheck:
    """Make a check that was not done."""
    return HealthCheck(name=name, status="skipped", why=why, figures=figures or {})


def days_of(time: timedelta) -> str:
    """Return a time for people.

    Example:
        >>> days_of(timedelta(hours=36)), days_of(timedelta(days=28)), days_of(timedelta(days=1))
        ('36 hours', '28 days', '24 hours')
    """
    days = time / _DAY
    return f"{days:.3g} days" if days >= 2 else f"{24 * days:.3g} hours"  # noqa: PLR2004
