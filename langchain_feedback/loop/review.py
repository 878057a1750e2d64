"""The review queue: two people can work on it without stepping on each other."""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from langchain_feedback.loop._reviewing.deciding import keep_verdict, take_back
from langchain_feedback.loop._reviewing.effects import Effects
from langchain_feedback.loop._reviewing.progress import Progress, ReviewerProgress, progress_of
from langchain_feedback.loop._reviewing.verdicts import (
    Decision,
    Verdict,
    check_verdict,
    in_force_of,
    named,
    text_of,
)
from langchain_feedback.loop.failures import FailureClass
from langchain_feedback.store.parts.base import twin
from langchain_feedback.store.reviewing.claiming import (
    claim_item,
    held_item,
    release_item,
)
from langchain_feedback.store.reviewing.finding import find_chunks
from langchain_feedback.store.reviewing.items import (
    Candidate,
    ReviewEvent,
    ReviewItem,
    add_items,
    expire_items,
    item_id_of,
    read_events,
    read_item,
    read_items,
)
from langchain_feedback.store.reviewing.verdicts import (
    add_event,
    in_force,
)
from langchain_feedback.store.transactions import clock, question_of, reading, writing
from langchain_feedback.traces import storable

if TYPE_CHECKING:
    from langchain_feedback.loop.owners import Owners
    from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = ["Decision", "Progress", "ReviewItem", "ReviewQueue", "ReviewerProgress", "Verdict"]


class ReviewQueue:
    """Hands out items one by one and does what verdicts mean.

    An item belongs to who claimed it until the claim ends. A verdict takes effect in one
    transaction: named chunks are pinned, a confirmed suspect gets a reviewer's vote against
    it, a missing document or a correction becomes an item for its owner, a stale document
    raises an alarm. `undo` takes all of it back. Of one item in ten, chosen by its id, two
    people must say the same before anything happens, and neither sees the other's verdict;
    where they differ, a third decides.

    Args:
        store: The queue is in its database, in its namespace.
        claim_for: How long an item is one's own.
        keep_for: After how long an item that nobody decided goes.
        reviews_required: How many people must agree on each item.
        double: The share of the items that two people look at.
        owners: Who is asked for corrections.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> from langchain_feedback import FeedbackStore
        >>> queue = ReviewQueue(FeedbackStore("sqlite://"), double=0)
        >>> pool = [{"chunk_id": "c1", "content_hash": "ab", "text": "By card.", "source": ""}]
        >>> queue.add([Candidate("answer", "How long?", 1.0, {"chunks": pool}, guess="c1")])
        1
        >>> item = queue.claim("ann")
        >>> queue.claim("bob") is None
        True
        >>> queue.decide(item, "confirm", none_exists=True).state
        'decided'
        >>> queue.undo("ann").state
        'open'
    """

    def __init__(
        self,
        store: "FeedbackStore",
        *,
        claim_for: timedelta = timedelta(minutes=10),
        keep_for: timedelta = timedelta(days=28),
        reviews_required: int = 1,
        double: float = 0.1,
        owners: "Owners | None" = None,
    ) -> None:
        if min(claim_for, keep_for) <= timedelta() or reviews_required < 1 or not 0 <= double <= 1:
            msg = (
                "claim_for and keep_for are above 0, reviews_required at least 1, double in "
                f"[0, 1]; got {claim_for!r}, {keep_for!r}, {reviews_required!r}, {double!r}"
            )
            raise ValueError(msg)
        self.store, self.owners = store, owners
        self._claim_for, self._keep_for = claim_for, keep_for
        self._required, self._double = reviews_required, double

    # -- what waits

    def add(self, candidates: Iterable[Candidate], *, now: datetime | None = None) -> int:
        """Add items; what the queue saw before is not added again. Return how many are new."""
        listed = list(candidates)
        required = {
            item_id: self._reviews_of(item_id)
            for item_id in (item_id_of(self.store.namespace, one) for one in listed)
        }
        with writing(self.store, lock="traces") as (connection, _):
            now = now or clock(self.store, connection)
            added = add_items(
                connection, self.store.namespace, listed,
                now=now, expires_at=now + self._keep_for, required=required,
            )  # fmt: skip
        return len(added)

    def _reviews_of(self, item_id: str) -> int:
        share = int(hashlib.sha256(f"double:{item_id}".encode()).hexdigest()[:8], 16) / 2**32
        return max(self._required, 2) if share < self._double else self._required

    def item(self, item_id: str) -> ReviewItem:
        """Return an item.

        Raises:
            UnknownItemError: If there is none of this id.
        """
        with reading(self.store) as connection:
            return read_item(connection, self.store.namespace, item_id)

    def items(
        self,
        *,
        state: Literal["open", "decided", "expired"] | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[ReviewItem]:
        """Return items, the most urgent first; decided ones, the newest first."""
        with reading(self.store) as connection:
            return read_items(
                connection, self.store.namespace, state=state, limit=limit, offset=offset
            )

    def events(self, item_id: str) -> list[ReviewEvent]:
        """Return the history of an item: verdicts, and what was taken back.

        While it waits for another reviewer, the verdicts on it are not told: he is to see it
        as the first one did.
        """
        with reading(self.store) as connection:
            events = read_events(connection, self.store.namespace, item_id)
            if not events or read_item(connection, self.store.namespace, item_id).state != "open":
                return events
        secret = {event.seq for event in in_force(events)}
        return [event for event in events if event.seq not in secret]

    def progress(self, *, since: datetime | None = None) -> Progress:
        """Return what waits, and what each reviewer did since then."""
        with reading(self.store) as connection:
            now = clock(self.store, connection)
            return progress_of(connection, self.store.namespace, since=since, now=now)

    def find(self, text: str, limit: int = 10) -> list[dict[str, Any]]:
        """Return chunks that hold these words, best first, as a snapshot has them.

        Any chunk that a retrieval ever returned may be found, and named right.
        """
        with reading(self.store) as connection:
            return find_chunks(connection, self.store.namespace, storable(text), limit)

    # -- one's own item

    def claim(self, reviewer: str, *, item_id: str | None = None) -> ReviewItem | None:
        """Return one's own item, else the next one; None where nothing is left.

        Args:
            reviewer: Who asks.
            item_id: This one; None: the most urgent that one has neither decided nor skipped.

        Raises:
            ValueError: If the reviewer has no name.
        """
        name = named(reviewer)
        # A claim that a power cut takes back is a claim that ended.
        with writing(self.store, lock="traces", durable=False) as (connection, _):
            now = clock(self.store, connection)
            expire_items(connection, self.store.namespace, now)
            return claim_item(
                connection, self.store.namespace, name,
                now=now, until=now + self._claim_for, item_id=item_id,
            )  # fmt: skip

    def decide(
        self,
        item: ReviewItem,
        verdict: Verdict,
        *,
        right_chunks: Sequence[str] = (),
        none_exists: bool = False,
        failure_class: FailureClass | None = None,
        note: str | None = None,
        correction: str | None = None,
    ) -> Decision:
        """Say what is right about one's own item.

        Args:
            item: What `claim` returned.
            verdict: About the guess.
            right_chunks: The ids of the chunks that answer the question: of the pool, or what
                `find` found.
            none_exists: Whether no document answers it.
            failure_class: What went wrong, where the system's class is not it.
            note: For who looks at it later.
            correction: What would be right, for the document's owner. It is never indexed.

        Raises:
            ClaimLostError: If somebody else has it meanwhile, or it is closed.
            ValueError: If the parts contradict each other; nothing is kept then.
        """
        right = list(dict.fromkeys(map(storable, right_chunks)))
        check_verdict(item, verdict, right, none_exists=none_exists, failure_class=failure_class)
        asked = question_of(self.store, item.question)
        with writing(self.store) as (connection, half_life):
            now = clock(self.store, connection)
            held = held_item(connection, self.store.namespace, item)
            said = {
                "verdict": verdict,
                "right_chunks": right,
                "none_exists": none_exists,
                "failure_class": failure_class or held.failure_class,
                "note": text_of(note),
                "correction": text_of(correction),
            }
            doing = Effects(connection, self.store.namespace, half_life, now, self.owners)
            return keep_verdict(doing, held, said, asked)

    def skip(self, item: ReviewItem) -> None:
        """Give one's own item back, for others.

        Raises:
            ClaimLostError: If somebody else has it meanwhile, or it is closed.
        """
        with writing(self.store, lock="traces") as (connection, _):
            held = held_item(connection, self.store.namespace, item)
            now = clock(self.store, connection)
            add_event(
                connection, self.store.namespace, held.item_id, str(held.claimed_by), "skip", now
            )
            release_item(connection, held.item_id)

    def undo(self, reviewer: str) -> ReviewItem | None:
        """Take back one's last verdict with all that it did, and open its item again.

        Where enough others say the same without it, the item stays decided, and what they
        brought about stays.

        Returns:
            The item; None where there is nothing to take back.
        """
        name = named(reviewer)
        with writing(self.store) as (connection, half_life):
            now = clock(self.store, connection)
            events = read_events(connection, self.store.namespace, None, reviewer=name)
            mine = [event for event in in_force_of(events, name) if event.action == "decide"]
            if not mine:
                return None
            last = mine[-1]
            doing = Effects(connection, self.store.namespace, half_life, now)
            take_back(doing, last, reopened_until=now + self._keep_for)
            return read_item(connection, self.store.namespace, last.item_id)

    def expire(self, now: datetime | None = None) -> int:
        """Close what nobody decided in time; return how many."""
        with writing(self.store, lock="traces") as (connection, _):
            now = now or clock(self.store, connection)
            return expire_items(connection, self.store.namespace, now)

    aadd = twin(add)
    aitem = twin(item)
    aitems = twin(items)
    aevents = twin(events)
    aprogress = twin(progress)
    afind = twin(find)
    aclaim = twin(claim)
    adecide = twin(decide)
    askip = twin(skip)
    aundo = twin(undo)
    aexpire = twin(expire)
