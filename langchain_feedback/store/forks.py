"""Locks and threads after a fork: the child has the locks as they were, and no threads."""

import os
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["renew_after_fork"]

_known: "WeakKeyDictionary[Any, str]" = WeakKeyDictionary()


def renew_after_fork(thing: Any, method: str = "after_fork") -> None:
    """Have a method called in every process that is forked from this one.

    It makes everything anew that another thread of the parent may have held.
    """
    _known[thing] = method


def _renew() -> None:
    for thing, method in list(_known.items()):
        getattr(thing, method)()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
