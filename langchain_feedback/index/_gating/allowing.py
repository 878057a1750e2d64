"""Overruling the gate: a person says that a text is no junk, and may take that back."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from langchain_core.documents import Document

from langchain_feedback.documents import content_hash
from langchain_feedback.index._gating.overrides import (
    Allowed,
    allow_texts,
    allowed_in,
    disallow_texts,
    named,
    note_change,
)
from langchain_feedback.store.parts.base import twin
from langchain_feedback.store.transactions import clock, reading, writing

if TYPE_CHECKING:
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Allowing"]


class Allowing:
    """The part of a `QualityGate` that people answer for."""

    store: "FeedbackStore"

    def allow(self, documents: Iterable[Document], *, actor: str, reason: str = "") -> int:
        """Overrule the checks: from now on they hide and drop none of these texts.

        It holds for a text in this namespace, so for each chunk that has it, and under rules to
        come; one that is edited is judged as any other. What is demoted or retired stays
        hidden: `Retirement.restore` brings that back. Saying it again replaces who and why.

        Args:
            documents: The chunks, with their texts in full.
            actor: Who answers for it.
            reason: Why, for people.

        Returns:
            How many texts were not allowed before.

        Raises:
            StoreError: If the database cannot be written.
            ValueError: If there is no actor.
        """
        hashes, actor = {content_hash(one) for one in documents}, named(actor)
        with writing(self.store) as (connection, _):
            now, of = clock(self.store, connection), self.store.namespace
            new = allow_texts(connection, of, hashes, actor=actor, reason=reason, now=now)
            if hashes:
                note_change(connection, of, {"allow": len(hashes)}, actor, now)
        return new

    def disallow(self, documents: Iterable[Document], *, actor: str) -> int:
        """Take `allow` back: the checks count again.

        Args:
            documents: The chunks.
            actor: Who answers for it.

        Returns:
            How many texts were allowed.

        Raises:
            StoreError: If the database cannot be written.
            ValueError: If there is no actor.
        """
        hashes, actor = {content_hash(one) for one in documents}, named(actor)
        with writing(self.store) as (connection, _):
            now, of = clock(self.store, connection), self.store.namespace
            gone = disallow_texts(connection, of, hashes)
            if gone:
                note_change(connection, of, {"disallow": gone}, actor, now)
        return gone

    def allowed(self) -> list[Allowed]:
        """Return what people allowed in this namespace, oldest first.

        Raises:
            StoreError: If the database cannot be read.
        """
        with reading(self.store) as connection:
            return allowed_in(connection, self.store.namespace)

    aallow = twin(allow)
    adisallow = twin(disallow)
    aallowed = twin(allowed)
