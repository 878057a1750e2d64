"""Suggestions: which neighbors belong together, which chunk is two, and on what that rests."""

import json
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_feedback.index._suggestions.cuts import Span, cuts, joined
from langchain_feedback.index.catalog import ChunkCatalog
from langchain_feedback.index.gate import QualityGate
from langchain_feedback.index.suggestions import (
    SuggestionRules,
    Suggestions,
    export_suggestions,
)
from langchain_feedback.store.feedback_store import FeedbackStore
from tests.unit_tests.index.retirement_kit import everything

REFUNDS = "A refund to the card takes 14 days from the request."
KEYS = "A key for the server is rotated every 30 days by the office."
FILLER = "The house has its own way with each of these things, and keeps to it. "
LONG = f"{REFUNDS} {FILLER * 20}{FILLER * 20}{KEYS}"


@pytest.fixture(params=["sqlite", "postgres"])
def any_store(request):
    url = "sqlite://" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with FeedbackStore(url, timeout_s=20) as store:
        yield store


@pytest.fixture
def store():
    with FeedbackStore("sqlite://", timeout_s=20) as store:
        yield store


def chunk(key, text=None, source="a.md", **more):
    text = f"Rule {key} of the house takes {key} days." if text is None else text
    return Document(text, id=str(key), metadata={"source": source, **more})


class World:
    """Chunks of an index, and answers that were written from them."""

    def __init__(self, store, *documents):
        self.store, self._traces = store, count()
        ChunkCatalog(store).sync(documents, complete=True)
        QualityGate(store).score(documents)

    def ask(
        self, question, prompt, *, actor="ann", cited=None, answer="So.", rating=None, **facts
    ):
        trace_id = f"trace-{next(self._traces)}"
        self.store.record_trace(trace_id, question, list(prompt), actor=actor)
        known = {"status": "answered", "grounded": True} | facts
        cited = prompt if cited is None else cited
        self.store.update_trace(trace_id, answer=answer, cited=list(cited), **known)
        if rating:
            self.store.rate(trace_id, rating, actor=actor)
        return trace_id

    def ask_all(self, prompt, times=10, questions=5, actors=3, **more):
        return [
            self.ask(f"Question {at % questions}?", prompt, actor=f"person {at % actors}", **more)
            for at in range(times)
        ]

    def find(self, **rules):
        return Suggestions(self.store, rules=SuggestionRules(**rules)).find()


# -- merging


def test_neighbors_that_answers_quote_together_are_one_chunk(any_store):
    one, two = chunk(1), chunk(2)
    world = World(any_store, one, two, chunk(3))
    traces = world.ask_all([one, two])
    [found] = world.find()
    assert (found.kind, found.reason, found.chunks) == ("merge", "used_together", ("1", "2"))
    assert found.texts == (f"{one.page_content}\n{two.page_content}",)
    assert found.source == "a.md"
    assert found.evidence["together"] == found.evidence["cited_both"] == 10
    assert found.evidence["overlap"] == 1
    assert found.evidence["traces"] == sorted(traces)
    assert found.evidence["questions"] == [f"Question {at}?" for at in range(5)]
    assert found.evidence["actors"] == 3
    assert found.confidence == pytest.approx(0.7225, abs=1e-4)  # 10 of 10, Wilson's lower end


@pytest.mark.parametrize(
    "less",
    [
        {"times": 9},
        {"questions": 4},
        {"actors": 2},
        {"cited": []},
        {"grounded": False},
    ],
    ids=["traces", "questions", "actors", "quotes", "grounded"],
)
def test_too_little_use_suggests_nothing(store, less):
    one, two = chunk(1), chunk(2)
    world = World(store, one, two)
    world.ask_all([one, two], **less)
    assert world.find() == []


def test_nameless_people_are_one(store):
    one, two = chunk(1), chunk(2)
    world = World(store, one, two)
    for at in range(12):
        world.ask(f"Question {at % 6}?", [one, two], actor=None)
    assert world.find() == []
    for person in ("ann", "bob"):
        world.ask("Question 1?", [one, two], actor=person)
    assert [found.evidence["actors"] for found in world.find()] == [3]


def test_half_of_the_answers_must_quote_both(store):
    one, two = chunk(1), chunk(2)
    world = World(store, one, two)
    world.ask_all([one, two], times=10)
    world.ask_all([one, two], times=11, cited=[one])
    assert world.find() == []
    world.ask_all([one, two], times=1)
    assert len(world.find()) == 1


def test_what_is_often_found_alone_is_no_pair(store):
    one, two = chunk(1), chunk(2)
    world = World(store, one, two)
    world.ask_all([one, two], times=10)
    world.ask_all([one], times=5)
    assert world.find() == []
    assert len(world.find(least_overlap=0.66)) == 1


def test_only_neighbors_of_one_source_are_a_pair(store):
    one, two, three = chunk(1), chunk(2), chunk(3)
    other = chunk("other", source="b.md")
    world = World(store, one, two, three, other)
    world.ask_all([one, three])
    world.ask_all([three, other])
    assert world.find() == []


def test_what_would_be_too_long_is_not_merged(store):
    one, two = chunk(1, FILLER * 25), chunk(2, FILLER.replace("house", "office") * 25)
    world = World(store, one, two)
    world.ask_all([one, two])
    assert world.find() == []
    assert len(world.find(most_units=2_000)) == 1


def test_answers_about_a_former_text_say_nothing(store):
    one, two = chunk(1), chunk(2)
    world = World(store, one, two)
    world.ask_all([one, two])
    ChunkCatalog(store).sync([one, chunk(2, "Rule 2 was written anew, for all.")], complete=True)
    assert world.find() == []


def test_traffic_of_evaluations_is_no_use(store):
    one, two = chunk(1), chunk(2)
    world = World(store, one, two)
    for at in range(12):
        store.record_trace(
            f"eval-{at}", f"Question {at}?", [one, two], actor=f"person {at}", traffic="eval"
        )
        store.update_trace(f"eval-{at}", answer="So.", cited=[one, two], grounded=True)
    assert world.find() == []


def test_a_chunk_that_begins_inside_a_sentence_belongs_to_the_one_before(store):
    cut = [chunk(1, "A refund takes, where it was paid"), chunk(2, "by card, at most 14 days.")]
    [found] = World(store, *cut).find()
    assert (found.reason, found.chunks) == ("cut_start", ("1", "2"))
    assert found.texts == ("A refund takes, where it was paid\nby card, at most 14 days.",)
    assert found.confidence == pytest.approx(0.095, abs=1e-4)  # 6 of 30, Wilson's lower end
    assert found.evidence == {"checks": {"cut_start": 0.3}}
    assert found.rests_on == "text"


def test_a_bare_heading_belongs_to_the_one_before(store):
    world = World(store, chunk(1), chunk(2, "More about this"), chunk(3))
    assert [(one.reason, one.chunks, one.rests_on) for one in world.find()] == [
        ("no_statement", ("1", "2"), "text")
    ]


def test_what_rests_on_the_text_alone_comes_last_and_what_looks_worst_first(store):
    cut = [chunk(1, "A refund takes, where it was paid"), chunk(2, "by card, at most 14 days.")]
    heading = [chunk(3, "Rule 3 takes 14 days.", source="b.md"), chunk(4, "More", source="b.md")]
    used = [chunk(5, source="c.md"), chunk(6, source="c.md")]
    world = World(store, *cut, *heading, *used)
    world.ask_all(used)
    found = world.find()
    assert [(one.reason, one.rests_on) for one in found] == [
        ("used_together", "use"), ("no_statement", "text"), ("cut_start", "text"),
    ]  # fmt: skip
    assert found[0].confidence > 0.5 > found[1].confidence == found[2].confidence
    # However weak the use is.
    for at in range(60):
        world.ask(f"Uncited {at}?", used, cited=[])
    weak = world.find(least_cited=0)
    assert weak[0].confidence < weak[1].confidence
    assert [one.rests_on for one in weak] == ["use", "text", "text"]


def test_what_only_looks_cut_stays(store):
    # A small letter at the start, behind a full stop: the whole text is known here.
    world = World(store, chunk(1, "Rule 1 takes 14 days."), chunk(2, "npm takes 3 of them."))
    assert world.find() == []


# -- splitting


def ask_apart(world, one, each=4, rating=5, **more):
    for at in range(each):
        world.ask(f"Refund {at}?", [one], answer=REFUNDS, rating=rating, **more)
        world.ask(f"Key {at}?", [one], answer=KEYS, rating=rating, **more)


def test_a_long_chunk_whose_ends_answer_different_questions_is_two(any_store):
    one = chunk(1, LONG)
    world = World(any_store, one)
    ask_apart(world, one)
    [found] = world.find()
    assert (found.kind, found.reason, found.chunks) == ("split", "separate_questions", ("1",))
    [offset] = found.offsets
    assert LONG[offset:].startswith("The house has its own way")
    assert [LONG[:offset].strip(), LONG[offset:].strip()] == list(found.texts)
    assert REFUNDS in found.texts[0]
    assert KEYS in found.texts[1]
    spans = {(span["start"], span["end"]) for span in found.evidence["spans"]}
    assert {LONG[start:end].rstrip(".") for start, end in spans} == {
        REFUNDS.rstrip("."),
        KEYS.rstrip("."),
    }
    assert len(found.evidence["traces"]) == len(found.evidence["questions"]) == 8
    assert found.confidence == pytest.approx(0.6756, abs=1e-4)  # 8 of 8, Wilson's lower end


def test_a_question_that_needs_both_ends_keeps_them_together(store):
    one = chunk(1, LONG)
    world = World(store, one)
    ask_apart(world, one)
    world.ask("Both?", [one], answer=f"{REFUNDS} {KEYS}", rating=5)
    assert world.find() == []


def test_fewer_questions_that_it_was_good_for_split_nothing(store):
    one = chunk(1, LONG)
    world = World(store, one)
    ask_apart(world, one, rating=None)
    assert world.find() == []
    ask_apart(world, one, each=3)
    assert world.find() == []
    assert len(world.find(least_credited=6)) == 1


def test_a_short_chunk_stays_whole(store):
    text = f"{REFUNDS} {FILLER * 10}{KEYS}"
    one = chunk(1, text)
    world = World(store, one)
    ask_apart(world, one)
    assert world.find() == []
    assert len(world.find(long_units=100)) == 1


def test_answers_in_words_of_their_own_prove_no_place(store):
    one = chunk(1, LONG)
    world = World(store, one)
    for at in range(10):
        world.ask(f"Refund {at}?", [one], answer="Within two weeks or so.", rating=5)
    assert world.find() == []


# -- as a whole


def test_finding_writes_nothing_and_the_surest_comes_first(store):
    documents = [chunk(1), chunk(2, "More about this"), chunk(3), chunk(4)]
    world = World(store, *documents)
    world.ask_all(documents[2:])
    before = everything(store)
    found = world.find()
    assert everything(store) == before
    assert [one.reason for one in found] == ["used_together", "no_statement"]
    assert [one.confidence for one in found] == sorted(
        (one.confidence for one in found), reverse=True
    )


def test_other_namespaces_say_nothing(store):
    one, two = chunk(1), chunk(2)
    World(store, one, two)
    World(store.scoped("other"), one, two).ask_all([one, two])
    assert Suggestions(store).find() == []
    assert len(Suggestions(store.scoped("other")).find()) == 1


async def test_the_twin_finds_the_same(store):
    world = World(store, chunk(1), chunk(2, "More about this"))
    assert await Suggestions(store).afind() == world.find()


@pytest.mark.parametrize("wrong", [{"least_overlap": 1.1}, {"days": -1}, {"least_cited": -0.1}])
def test_rules_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SuggestionRules(**wrong)


def test_what_goes_out_is_a_line_of_json_each(store, tmp_path):
    one, two = chunk(1, "Für Rückgaben gelten 14 Tage."), chunk(2)
    world = World(store, one, two, chunk(3, "More about this"))
    world.ask_all([one, two])
    path = tmp_path / "suggestions.jsonl"
    path.write_text("old\n")
    found = world.find()
    assert export_suggestions(found, path) == 2
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(line["reason"], line["rests_on"]) for line in lines] == [
        ("used_together", "use"), ("no_statement", "text"),
    ]  # fmt: skip
    assert "checks" in lines[1]["evidence"]
    assert lines[1]["texts"] == list(found[1].texts)
    assert lines[1]["content_hashes"] == list(found[1].content_hashes)
    assert "Für" in path.read_text(encoding="utf-8")


# -- joining and cutting


def test_a_word_that_is_cut_joins_to_the_whole_word(store):
    text = "A refund takes no more than 14 days from the request."
    parts = [chunk(1, text[:19], start_index=0), chunk(2, text[19:], start_index=19)]
    [found] = World(store, *parts).find()
    assert found.texts == (text,)
    assert found.evidence == {"checks": {"cut_start": 0.0}}


@given(st.text("ab .", max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_what_was_cut_with_an_overlap_joins_to_what_it_was(text, first, second):
    low, high = sorted((min(first, len(text)), min(second, len(text))))
    one, two = text[:high], text[low:]
    assert joined(one, two, apart=low)[0] == text


def test_without_places_a_long_overlap_is_found_and_a_short_one_is_not():
    text = REFUNDS + " " + KEYS
    assert joined(text[:80], text[50:])[0] == text
    assert joined(text[:60], text[50:])[0] != text


def test_a_wrong_place_loses_nothing():
    assert joined("One thing.", "Another.", apart=3) == ("One thing.\nAnother.", 0)


SPANS = st.lists(
    st.builds(
        lambda start, length, question: Span(start, min(start + length, len(LONG)), question),
        st.integers(0, len(LONG) - 1),
        st.integers(1, 80),
        st.integers(0, 9),
    ),
    max_size=12,
)


@given(SPANS)
def test_no_question_needs_both_sides_of_a_cut_and_no_passage_is_cut(spans):
    found = cuts(LONG, spans)
    assert found == sorted(set(found))
    for cut in found:
        assert not any(span.start < cut < span.end for span in spans)
        left = {span.question for span in spans if span.end <= cut}
        right = {span.question for span in spans if span.start >= cut}
        assert len(left) >= 2
        assert len(right) >= 2
        assert not left & right
        ends = [span.end for span in spans if span.end <= cut]
        starts = [span.start for span in spans if span.start >= cut]
        assert min(starts) - max(ends) > 150
