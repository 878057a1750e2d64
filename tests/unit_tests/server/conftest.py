"""Stores of both kinds, each on a real database of its own."""

from tests.unit_tests.store.conftest import store, url

__all__ = ["store", "url"]
