"""Which experiment runs: read from the store now and then, not with every question."""

import time
from typing import TYPE_CHECKING

from langchain_feedback.retrievers._once import Once
from langchain_feedback.store.experiments import ExperimentRecord, read_experiment
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["ExperimentWatch"]


class ExperimentWatch:
    """Knows whether an experiment runs, at most `poll_s` seconds late.

    Args:
        name: The experiment's.
        kind: What it must be.
        once: Says what is wrong with it.
    """

    def __init__(self, name: str, kind: str, once: Once) -> None:
        self._name, self._kind, self._once = name, kind, once
        self._known: ExperimentRecord | None = None
        self._read_at: float | None = None

    def running(self, store: "FeedbackStore", poll_s: float) -> ExperimentRecord | None:
        """Return it while it runs; None before, after, and while the store cannot be read."""
        at, now = self._read_at, time.monotonic()
        if at is not None and now - at < poll_s:
            return self._known
        # No lock, which a fork could keep for ever: at worst two threads read the same.
        found = store.try_read(lambda: self._read(store), None)
        self._known = found if found is not None and found.is_running else None
        self._read_at = now
        return self._known

    def _read(self, store: "FeedbackStore") -> ExperimentRecord | None:
        with reading(store) as connection:
            found = read_experiment(connection, store.namespace, self._name)
        if found is None:
            self._once.warn(
                "unknown",
                "There is no experiment %r in namespace %r: `a` answers alone until "
                "`start_experiment` has begun it.",
                self._name,
                store.namespace,
            )
        elif found.kind != self._kind:
            self._once.warn(
                "kind",
                "Experiment %r is of the kind %r, and this retriever serves %r: `a` answers.",
                self._name,
                found.kind,
                self._kind,
            )
            return None
        return found
