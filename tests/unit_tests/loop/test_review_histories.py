"""Random histories of the queue, against a model of it that fits on a page."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from langchain_core.documents import Document

from langchain_feedback import FeedbackStore
from langchain_feedback.errors import ClaimLostError
from langchain_feedback.loop.labels import reviewed_questions
from langchain_feedback.loop.review import ReviewQueue
from tests.unit_tests.loop.test_review import candidate, later

ITEMS = 4
reviewers = st.sampled_from(["ann", "bob", "cem", "dee"])


@dataclass
class Modeled:
    required: int
    state: str = "open"
    holder: str | None = None
    token: str | None = None
    live: bool = False
    skipped: set = field(default_factory=set)
    said: list = field(default_factory=list)

    def shared(self):
        verdicts = [verdict for _, _, verdict in reversed(self.said)]
        return next((one for one in verdicts if verdicts.count(one) >= self.required), None)

    def free_for(self, name):
        taken = self.live and self.holder != name
        judged = any(name == who for who, _, _ in self.said)
        return self.state == "open" and not taken and not judged


class Queue(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.store = FeedbackStore("sqlite://")
        self.queue = ReviewQueue(self.store, double=0.5)
        # Each has a priority of its own, so that the order is one only.
        self.queue.add([candidate(number, priority=number) for number in range(ITEMS)])
        self.store.record_trace("t", "Any?", [Document("The right one.", id="right")])
        listed = self.queue.items(state="open")
        self.model = {item.item_id: Modeled(item.reviews_required) for item in listed}
        self.questions = {item.item_id: item.question for item in listed}
        self.seen, self.clock = {}, 0

    def teardown(self):
        self.store.close()

    @rule(name=reviewers)
    def claim(self, name):
        wanted = [
            (not (item.live and item.holder == name), at, item_id)
            for at, (item_id, item) in enumerate(self.model.items())
            if item.free_for(name)
            and ((item.live and item.holder == name) or name not in item.skipped)
        ]
        self._claimed(name, self.queue.claim(name), min(wanted)[2] if wanted else None)

    @rule(name=reviewers, at=st.integers(0, ITEMS - 1))
    def claim_this(self, name, at):
        item_id = list(self.model)[at]
        wanted = item_id if self.model[item_id].free_for(name) else None
        self._claimed(name, self.queue.claim(name, item_id=item_id), wanted)

    def _claimed(self, name, item, wanted):
        assert (item and item.item_id) == wanted
        if item is not None:
            known = self.model[wanted]
            if known.live and known.holder == name:
                assert item.claim_token == known.token
            known.holder, known.token, known.live = name, item.claim_token, True
            self.seen[name] = item

    @rule(name=reviewers, verdict=st.sampled_from(["confirm", "reject", "unclear"]))
    @precondition(lambda self: self.seen)
    def decide(self, name, verdict):
        if (item := self.seen.get(name)) is None:
            return
        known = self.model[item.item_id]
        right = ["right"] if verdict == "confirm" else []
        if known.token != item.claim_token:
            with pytest.raises(ClaimLostError):
                self.queue.decide(item, verdict, right_chunks=right)
            return
        done = self.queue.decide(item, verdict, right_chunks=right)
        self.clock += 1
        known.said.append((name, self.clock, verdict))
        known.holder, known.token, known.live = None, None, False
        known.state = "decided" if known.shared() else "open"
        assert done.state == known.state

    @rule(name=reviewers)
    def skip(self, name):
        if (item := self.seen.get(name)) is None:
            return
        known = self.model[item.item_id]
        if known.token != item.claim_token:
            with pytest.raises(ClaimLostError):
                self.queue.skip(item)
            return
        self.queue.skip(item)
        known.skipped.add(name)
        known.holder, known.token, known.live = None, None, False

    @rule(name=reviewers)
    def undo(self, name):
        mine = [
            (clock, item_id, one)
            for item_id, item in self.model.items()
            for one in item.said
            if (clock := one[1]) and one[0] == name
        ]
        item = self.queue.undo(name)
        if not mine:
            assert item is None
            return
        _, item_id, one = max(mine)
        known = self.model[item_id]
        known.said.remove(one)
        if known.state == "decided" and known.shared() is None:
            known.state = "open"
        assert (item.item_id, item.state) == (item_id, known.state)

    @rule()
    def time_passes(self):
        later(self.store, hours=1)
        for item in self.model.values():
            item.live = False

    @invariant()
    def the_queue_is_as_modeled(self):
        rows = {item.item_id: item for item in self.queue.items()}
        for item_id, known in self.model.items():
            row = rows[item_id]
            assert (row.state, row.claimed_by, row.claim_token) == (
                known.state, known.holder, known.token,
            )  # fmt: skip
            pinned = self.store.evidence_for(self.questions[item_id]).pins
            named = known.state == "decided" and known.shared() == "confirm"
            assert len(pinned) == named
        labels = {label.item_id: label.verdict for label in reviewed_questions(self.store)}
        assert labels == {
            item_id: known.shared()
            for item_id, known in self.model.items()
            if known.state == "decided"
        }


Queue.TestCase.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
test_histories_of_the_queue_are_as_modeled_check6 = Queue.TestCase
