"""Which experiment runs: read from the store now and then, not with every question."""

import time
from typing import TYPE_CHECKING

from langchain_feedback.retrievers._once import Once
from langchain_feedback.store.experiments import (
    ExperimentRecord,
    count_members,
    read_experiment,
)
from langchain_feedback.store.transactions import reading

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["ExperimentWatch"]


class ExperimentWatch:
    """Knows whether an experiment waits for questions, at most `poll_s` seconds late.

    Args:
        store: Where it runs.
        name: The experiment's.
        kind: What it must be.
        once: Says what is wrong with it.
    """

    def __init__(self, store: "FeedbackStore", name: str, kind: str, once: Once) -> None:
        self._store, self._name, self._kind, self._once = store, name, kind, once
        self._known: ExperimentRecord | None = None
        self._read_at: float | None = None

    def is_of(self, store: "FeedbackStore", name: str) -> bool:
        """Whether it is this experiment of this store that it knows about."""
        return self._store is store and self._name == name

    def running(self, poll_s: float) -> ExperimentRecord | None:
        """Return it from its beginning until it has the questions that it waits for.

        None before, after, and while the store cannot be read.
        """
        at, now = self._read_at, time.monotonic()
        if at is not None and now - at < poll_s:
            return self._known
        # No lock, which a fork could keep for ever: at worst two threads read the same.
        self._known = known = self._store.try_read(self._read, None)
        self._read_at = now
        return known

    def _read(self) -> ExperimentRecord | None:
        namespace = self._store.namespace
        with reading(self._store) as connection:
            found = read_experiment(connection, namespace, self._name)
            if found is not None and found.is_running and found.kind == self._kind:
                # Somebody may be forgotten, and then it waits for one more.
                asked = count_members(connection, namespace, found.experiment_id, found.horizon)
                return found if asked < found.horizon else None
        self._warn(found)
        return None

    def _warn(self, found: ExperimentRecord | None) -> None:
        namespace = self._store.namespace
        if found is None:
            self._once.warn(
                f"no experiment {self._name!r} in {namespace!r}",
                "There is no experiment %r in namespace %r: `a` answers alone until "
                "`start_experiment` has begun it.",
                self._name,
                namespace,
            )
        elif found.kind != self._kind:
            self._once.warn(
                f"kind of {self._name!r} in {namespace!r}",
                "Experiment %r is of the kind %r, and this retriever serves %r: `a` answers.",
                self._name,
                found.kind,
                self._kind,
            )
