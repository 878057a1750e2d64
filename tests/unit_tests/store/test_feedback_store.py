"""Ratings, signals, pins and traces through the public API, on SQLite and PostgreSQL."""

import logging
import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from langchain_classic.embeddings import CacheBackedEmbeddings
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.stores import InMemoryByteStore
from sqlalchemy import select

from langchain_feedback.documents import content_hash
from langchain_feedback.errors import (
    EventReusedError,
    StoreError,
    StoreVersionError,
    TraceReusedError,
    UnknownChunkError,
    UnknownEventError,
    UnknownTraceError,
)
from langchain_feedback.store import (
    care_schema,
    evidence,
    incoming,
    learning_schema,
    schema,
    tracing,
    voting,
)
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.migrations import running
from langchain_feedback.store.questions import Question
from langchain_feedback.store.records import TracedChunk

QUESTION = "How long does a refund take?"
REFUND = Document("A refund takes 14 days.", id="refund", metadata={"source": "faq.md"})
KEYS = Document("Keys rotate every 90 days.", id="keys", metadata={"source": "faq.md"})
SERVERS = Document("Servers reboot in two minutes.", id="servers", metadata={"source": "ops.md"})


def traced(store, trace_id="t1", documents=(REFUND, KEYS), question=QUESTION, **kwargs):
    store.record_trace(trace_id, question, list(documents), **kwargs)
    return trace_id


def sums(store, question=QUESTION):
    """What is known, by the text's own id: rounded, since it ages while the test runs."""
    names = {content_hash(d): d.id for d in (REFUND, KEYS, SERVERS)}
    return {
        names[cell.content_hash]: (round(cell.positive, 4), round(cell.negative, 4))
        for cell in store.evidence_for(question).cells
    }


def table(store):
    """The evidence table as it stands."""
    with store._reading() as connection:
        return sorted(tuple(row) for row in connection.execute(select(schema.evidence)))


# -- attribution


def test_a_rating_of_an_answer_without_citations_is_shared_by_its_chunks(store):
    traced(store)
    store.rate("t1", 5)
    assert sums(store) == {"refund": (0.7071, 0), "keys": (0.7071, 0)}


def test_a_rating_goes_to_what_the_answer_quotes_also_when_that_is_known_later(store):
    traced(store)
    store.rate("t1", 5)
    store.update_trace("t1", cited=[REFUND], grounded=True)
    assert sums(store) == {"refund": (1, 0)}
    store.rate("t1", 1)
    assert sums(store) == {"refund": (0, 1), "keys": (0, 0.3)}


def test_a_bad_answer_that_its_relevant_source_does_not_support_is_not_the_sources_fault(store):
    traced(store)
    store.update_trace(
        "t1", cited=["refund"], grounded=False, grades={"refund": "yes", "keys": "no"}
    )
    store.rate("t1", 1)
    assert sums(store) == {"keys": (0, 0.3)}
    [asked] = store.evidence_for(QUESTION).questions
    assert round(asked.negative, 4) == 1


def test_only_the_chunks_of_the_last_searchs_prompt_share(store):
    traced(store)
    traced(store, documents=[SERVERS, KEYS], attempt=2, query="refund duration")
    store.update_trace("t1", in_prompt=[SERVERS])
    store.rate("t1", 4)
    assert sums(store) == {"servers": (1, 0)}
    assert store.trace("t1").searches == {1: QUESTION, 2: "refund duration"}


def test_a_click_far_down_counts_more_and_a_rating_of_one_source_is_its_own(store):
    traced(store)
    store.signal("t1", "source_click", target=KEYS)
    store.rate("t1", 1, target="refund")
    assert sums(store) == {"keys": (1.0, 0), "refund": (0, 1)}


def test_signals_for_monitoring_move_nothing(store):
    traced(store)
    for name in (
        "regenerate",
        "rephrase",
        "contradiction",
        "abandon",
        "grounded",
        "not_grounded",
        "abstained",
    ):
        store.signal("t1", name)
    store.signal("t1", "correction", correction="It takes 10 days.")
    assert sums(store) == {}
    assert store.evidence_for(QUESTION).questions == ()


# -- A14 to A16


def test_a14_an_unknown_trace_is_told_and_nothing_is_kept(store):
    with pytest.raises(UnknownTraceError, match="pending=True"):
        store.rate("nobody", 5, event_id="e1")
    traced(store)
    store.rate("t1", 5, event_id="e1")
    assert sums(store) == {"refund": (0.7071, 0), "keys": (0.7071, 0)}


def test_a14_a_pending_rating_counts_once_its_trace_arrives(store):
    event = store.rate("t1", 5, target="refund", pending=True)
    store.signal("t1", "source_click", target="keys", pending=True)
    assert sums(store) == {}
    traced(store)
    assert sums(store) == {"refund": (1, 0), "keys": (1, 0)}
    store.retract(event)
    assert sums(store) == {"keys": (1, 0)}


def test_a14_a_source_that_was_not_retrieved_cannot_be_rated(store):
    traced(store)
    with pytest.raises(UnknownChunkError, match="servers"):
        store.rate("t1", 5, target=SERVERS)
    with pytest.raises(UnknownChunkError, match="servers"):
        store.update_trace("t1", cited=["servers"])
    assert sums(store) == {}


@pytest.mark.parametrize("rating", [0, 6, -1, 4.5, "5", None, True])
def test_a_rating_outside_1_to_5_is_refused_and_nothing_is_kept(store, rating):
    traced(store)
    with pytest.raises(ValueError, match="from 1 to 5"):
        store.rate("t1", rating)
    assert sums(store) == {}


def test_an_unknown_signal_is_refused_with_the_names_of_those_there_are(store):
    traced(store)
    with pytest.raises(ValueError, match="thumbs_up"):
        store.signal("t1", "thumb_up")


def test_a15_the_same_event_id_eight_times_at_once_is_one_rating(store):
    traced(store)
    with ThreadPoolExecutor(8) as pool:
        rated = [pool.submit(store.rate, "t1", 5, event_id="click-1") for _ in range(8)]
    assert {future.result() for future in rated} == {"click-1"}
    with store._reading() as connection:
        assert len(connection.execute(select(schema.signals)).all()) == 1
    store.rate("t1", 1, event_id="click-1")
    assert sums(store) == {"refund": (0.7071, 0), "keys": (0.7071, 0)}


@pytest.mark.parametrize("other", [{"trace_id": "t2"}, {"target": REFUND}, {"target": "keys"}])
def test_a15_an_event_id_of_another_trace_or_target_is_told_and_nothing_is_kept(store, other):
    traced(store)
    traced(store, "t2")
    store.rate("t1", 5, event_id="click-1")
    before = table(store)
    with pytest.raises(EventReusedError, match="'click-1'"):
        store.rate(**{"trace_id": "t1", "rating": 1, "event_id": "click-1"} | other)
    assert table(store) == before
    with store._reading() as connection:
        assert len(connection.execute(select(schema.signals)).all()) == 1
    assert store.rate("t1", 5, target="answer", event_id="click-1") == "click-1"


def test_a15_a_pending_event_id_of_another_trace_is_told_and_sent_again_it_is_one(store):
    for _ in range(2):
        store.signal("t1", "source_click", target="refund", event_id="click-1", pending=True)
    with pytest.raises(EventReusedError):
        store.signal("t2", "source_click", target="refund", event_id="click-1", pending=True)
    traced(store)
    store.signal("t1", "source_click", target=REFUND, event_id="click-1", pending=True)
    assert sums(store) == {"refund": (0.5, 0)}


def test_a15_of_one_event_id_for_eight_traces_at_once_one_is_kept_and_seven_are_told(store):
    for number in range(8):
        traced(store, f"t{number}")
    with ThreadPoolExecutor(8) as pool:
        rated = [pool.submit(store.rate, f"t{n}", 5, event_id="click-1") for n in range(8)]
    told = [future.exception() for future in rated]
    assert sum(isinstance(error, EventReusedError) for error in told) == 7
    with store._reading() as connection:
        [trace_id] = connection.execute(select(schema.signals.c.trace_id)).scalars()
    assert trace_id == f"t{told.index(None)}"


def test_a15_namespaces_have_event_ids_of_their_own(store):
    other = store.scoped("other")
    traced(store)
    traced(other, "t2")
    store.rate("t1", 5, event_id="click-1")
    other.rate("t2", 1, event_id="click-1")
    assert sums(store) == {"refund": (0.7071, 0), "keys": (0.7071, 0)}
    assert sums(other) == {"refund": (0, 0.7071), "keys": (0, 0.7071)}


def test_a15_a_change_of_mind_replaces_and_history_is_kept(store):
    traced(store)
    store.rate("t1", 1, target=REFUND, actor="ann")
    latest = store.rate("t1", 5, target=REFUND, actor="ann")
    assert sums(store) == {"refund": (1, 0)}
    store.retract(latest)
    assert sums(store) == {}, "an older vote does not come back"
    with store._reading() as connection:
        ratings = connection.execute(select(schema.signals.c.rating)).scalars().all()
    assert sorted(ratings) == [1, 5]


def test_a15_two_people_are_two_votes_and_one_person_is_one_on_any_number_of_traces(store):
    for number in range(20):
        traced(store, f"t{number}")
        store.rate(f"t{number}", 1, target=REFUND, actor="ann")
    store.rate("t0", 5, target=REFUND, actor="bob")
    assert sums(store) == {"refund": (1, 1)}


def test_who_asked_votes_where_nobody_is_named(store):
    traced(store, "t1", actor="ann")
    traced(store, "t2", actor="ann")
    traced(store, "t3", session_id="s1")
    traced(store, "t4", session_id="s1")
    traced(store, "t5")
    traced(store, "t6")
    for number in range(1, 7):
        store.rate(f"t{number}", 5, target=REFUND)
    assert sums(store) == {"refund": (4, 0)}, "ann, the session, and two of nobody"


def test_a_neutral_rating_takes_back_what_was_said(store):
    traced(store)
    store.rate("t1", 5, target=REFUND, actor="ann")
    traced(store, "t2")
    store.rate("t2", 3, target=REFUND, actor="ann")
    assert sums(store) == {}


def test_retracting_what_is_not_there_is_told_and_twice_is_harmless(store):
    traced(store)
    event = store.rate("t1", 5)
    store.retract(event)
    store.retract(event)
    with pytest.raises(UnknownEventError):
        store.retract("nothing")


def test_a16_a_database_that_cannot_be_opened_is_a_store_error(tmp_path):
    store = FeedbackStore(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}")
    with pytest.raises(StoreError, match=r"folder\.db"):
        store.setup()


def test_a16_a_file_that_is_no_database_is_a_store_error(tmp_path):
    (tmp_path / "feedback.db").write_text("not a database, but long enough to look at " * 50)
    with pytest.raises(StoreError, match="not a database"):
        FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}").setup()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a16_passwords_stay_out_of_messages(scheme):
    store = FeedbackStore(f"{scheme}://me:secret@127.0.0.1:1/none")
    with pytest.raises(StoreError) as caught:
        store.setup()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "bad",
    [
        *("", "feedback.db", "mysql://host/name", "oracle://x", "sqlite+aiosqlite:///x.db"),
        *("postgresql+asyncpg://h/x", "postgresql+psycopg2://h/x", "postgresql://h:port/x"),
    ],
)
def test_a_url_that_is_none_is_told(bad):
    with pytest.raises(ValueError, match=r"postgresql\+psycopg://user"):
        FeedbackStore(bad)


# -- A17: threads, loops, memory


def test_a17_memory_is_one_database_for_all_threads():
    with FeedbackStore("sqlite://") as store:
        traced(store)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: store.rate("t1", 5, target=REFUND, actor=f"u{n}"), range(40)))
        assert sums(store) == {"refund": (40, 0)}


async def test_a17_every_method_has_an_async_twin_that_says_the_same(store):
    await store.arecord_trace("t1", QUESTION, [REFUND, KEYS])
    event = await store.arate("t1", 5, target=REFUND)
    await store.asignal("t1", "source_click", target=KEYS)
    assert await store.aevidence_for(QUESTION) != ()
    assert sums(store) == {"refund": (1, 0), "keys": (1, 0)}
    await store.aretract(event)
    pin = await store.apin(QUESTION, SERVERS)
    assert [found.pin_id for found in store.evidence_for(QUESTION).pins] == [pin]
    assert (await store.atrace("t1")).question == QUESTION
    public = {name for name in dir(store) if not name.startswith("_")}
    twins = {name for name in public if name.startswith("a") and name[1:] in public}
    sync_only = {"scoped", "record_manager", "embedder", "embeddings", "namespace"}
    sync_only |= {"try_read", "timeout_s", "url"}
    assert public - twins - sync_only == {name[1:] for name in twins}


def test_a17_closing_twice_is_harmless_and_a_closed_store_opens_again(store):
    traced(store)
    store.close()
    store.close()
    store.rate("t1", 5, target=REFUND)
    assert sums(store) == {"refund": (1, 0)}


# -- A19: time


def test_a19_times_come_back_in_utc_and_a_naive_one_is_refused(store):
    traced(store)
    india = timezone(timedelta(hours=5, minutes=30))
    store.rate("t1", 5, client_time=datetime(2026, 1, 1, 23, tzinfo=india))
    with pytest.raises(ValueError, match="zone"):
        store.rate("t1", 5, client_time=datetime(2026, 1, 1, 18))  # noqa: DTZ001
    with store._reading() as connection:
        row = connection.execute(select(schema.signals)).one()
    assert row.client_time == datetime(2026, 1, 1, 17, 30, tzinfo=UTC)
    assert row.client_time.utcoffset() == row.received_at.utcoffset() == timedelta(0)
    assert abs(row.received_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_votes_age_by_half_lives_and_the_database_keeps_the_setting(url):
    with FeedbackStore(url, half_life_days=30) as store:
        traced(store)
        store.rate("t1", 5, target=REFUND, actor="ann")
        with store._writing() as (connection, _):
            this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
            month_ago = schema.signals.update().values(received_at=this_hour - timedelta(days=30))
            connection.execute(month_ago)
        store.rebuild_evidence()
        assert sums(store) == {"refund": (0.5, 0)}
    with FeedbackStore(url) as again:
        assert sums(again) == {"refund": (0.5, 0)}, "30 days is kept"
        again.rate("t1", 5, target=REFUND, actor="bob")
    with FeedbackStore(url, half_life_days=None) as ageless:
        assert sums(ageless) == {"refund": (2, 0)}


@pytest.mark.parametrize("days", [0, -1, float("inf"), float("nan"), "ninety"])
def test_a_half_life_that_is_none_is_refused(days):
    with pytest.raises(ValueError, match="half_life_days"):
        FeedbackStore("sqlite://", half_life_days=days)


# -- questions


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("how long does a refund take", True),
        ("  How long  does a\nrefund take ?!", True),
        ("HOW LONG DOES A REFUND TAKE?", True),
        ("How long does the refund take?", False),
        ("How long does a refund, take?", False),
    ],
)
def test_identical_questions_differ_in_case_space_and_closing_marks_only(store, other, same):
    traced(store)
    store.rate("t1", 5, target=REFUND)
    assert bool(store.evidence_for(other).cells) is same


class Directions(Embeddings):
    """Embeds a question by the angle that its last word names; counts its calls."""

    def __init__(self):
        self.calls = 0

    def embed_query(self, text):
        self.calls += 1
        angle = math.radians(float(text.split()[-1]))
        return [math.cos(angle), math.sin(angle)]

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


def test_similar_questions_share_feedback_and_say_how_similar_they_are(url):
    with FeedbackStore(url, embeddings=Directions()) as store:
        for angle in (0, 10, 90):
            traced(store, f"t{angle}", question=f"refund {angle}")
            store.rate(f"t{angle}", 5, target=REFUND)
        found = store.evidence_for("refund 5", min_similarity=0.9)
        assert [q.text for q in found.questions] == ["refund 0", "refund 10"]
        assert all(q.similarity == pytest.approx(0.9962, abs=1e-4) for q in found.questions)
        assert not any(q.exact for q in found.questions)
        found = store.evidence_for("Refund 10 ?", vector=[0.9848, 0.1736], min_similarity=0.9)
        assert [(q.text, q.exact) for q in found.questions] == [
            ("refund 10", True),
            ("refund 0", False),
        ]
        assert len(store.evidence_for("refund 5", limit=2).questions) == 2


def test_one_embedding_call_a_look_up_and_none_where_the_vector_is_given(url):
    embeddings = Directions()
    with FeedbackStore(url, embeddings=embeddings) as store:
        store.record_trace("t1", "refund 0", [REFUND], vector=[1, 0])
        store.rate("t1", 5)
        store.evidence_for("refund 3", vector=[1, 0])
        store.record_soon("t2", "refund 7", [REFUND])
        assert embeddings.calls == 0
        store.evidence_for("refund 3")
        assert embeddings.calls == 1


def test_without_embeddings_only_identical_questions_count_and_it_says_so_once(store, caplog):
    traced(store)
    store.rate("t1", 5, target=REFUND)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert store.evidence_for("How long do refunds take?").cells == ()
    assert len([r for r in caplog.records if "identical" in r.message]) == 1


def test_another_process_sees_a_new_question_at_once(url):
    with (
        FeedbackStore(url, embeddings=Directions()) as here,
        FeedbackStore(url, embeddings=Directions()) as there,
    ):
        assert there.evidence_for("refund 5").questions == ()
        traced(here, question="refund 0")
        here.rate("t1", 5, target=REFUND)
        assert [q.text for q in there.evidence_for("refund 5").questions] == ["refund 0"]


def test_vectors_of_another_model_are_never_compared(url):
    class Others(Directions):
        def embed_query(self, text):
            return [*super().embed_query(text), 0.0]

    with FeedbackStore(url, embeddings=Directions()) as store:
        traced(store, question="refund 0")
        store.rate("t1", 5, target=REFUND)
    with FeedbackStore(url, embeddings=Others()) as store:
        assert store.evidence_for("refund 1").questions == ()
        assert len(store.evidence_for("refund 0").questions) == 1


# -- pins


def test_a_pin_is_told_for_the_identical_question_and_counts_3_for_it_and_similar_ones(url):
    with FeedbackStore(url, embeddings=Directions()) as store:
        pin = store.pin("refund 0", REFUND, actor="reviewer")
        assert store.pin("Refund 0", REFUND) == pin
        assert [found.pin_id for found in store.evidence_for("refund 0").pins] == [pin]
        similar = store.evidence_for("refund 5")
        assert similar.pins == ()
        assert [cell.positive for cell in similar.cells] == [3]
        store.retract(pin)
        assert store.evidence_for("refund 0").cells == store.evidence_for("refund 5").cells == ()


def test_a_chunk_that_was_never_seen_cannot_be_pinned_by_its_id(store):
    with pytest.raises(UnknownChunkError, match="document itself"):
        store.pin(QUESTION, "refund")
    traced(store)
    store.pin(QUESTION, "refund")
    assert sums(store) == {"refund": (3, 0)}


# -- chunks


def test_feedback_survives_an_index_with_new_ids_but_not_a_changed_text(store):
    traced(store)
    store.rate("t1", 5, target=REFUND)
    [known] = store.evidence_for(QUESTION).cells
    renamed = REFUND.model_copy(update={"id": "new-random-id"})
    moved = REFUND.model_copy(update={"metadata": {"source": "moved.md"}})
    edited = REFUND.model_copy(update={"page_content": "A refund takes 10 days."})
    assert store.cells_of([renamed, moved]) == [known.key, known.key]
    assert store.cells_of([edited]) != [known.key]
    traced(store, "t2", [edited])
    traced(store, "t3", [REFUND])
    assert store.cells_of([REFUND]) == [known.key], "the text is back, so is its feedback"


def test_snapshots_hold_what_was_seen_without_marks_of_ours(store):
    marked = REFUND.model_copy(
        update={
            "metadata": {
                "source": "faq.md",
                "page": 3,
                "handle": threading.Lock(),
                "relevance_score": 0.5,
                "feedback": {"trace_id": "t0"},
            }
        }
    )
    traced(store, documents=[marked])
    cells = store.cells_of([REFUND])
    [snapshot] = store.snapshots(cells)[cells[0]]
    assert snapshot.document == Document(
        REFUND.page_content, id="refund", metadata={"source": "faq.md", "page": 3}
    )
    assert snapshot.dropped == {"handle": "lock"}
    later = datetime.now(UTC) + timedelta(seconds=5)
    assert store.snapshots(cells, seen_since=later) == {cells[0]: []}


def test_texts_that_a_database_cannot_hold_are_kept_readable(store):
    odd = Document("A refund\0 takes \ud800 days.", id="odd")
    store.record_trace("t1", "refund\0?", [odd])
    store.rate("t1", 5, target=odd, comment="good\0")
    store.update_trace("t1", answer="14\0 days", status="answered")
    assert store.trace("t1").answer == "14\ufffd days"
    assert len(store.evidence_for("refund\0?").cells) == 1


def test_recording_a_search_twice_changes_nothing_and_a_taken_id_is_told(store):
    traced(store)
    store.rate("t1", 5)
    before = table(store)
    traced(store)
    assert table(store) == before
    with pytest.raises(UnknownTraceError, match="namespace"):
        traced(store.scoped("other"))


def test_candidates_that_were_not_returned_are_kept_and_share_nothing(store):
    chunks = [
        TracedChunk(REFUND, final_rank=0, base_rank=1, origin="injected", belief=0.5),
        TracedChunk(KEYS, final_rank=1, base_rank=0, returned=False),
    ]
    store.record_trace("t1", QUESTION, chunks)
    store.rate("t1", 5)
    assert sums(store) == {"refund": (1, 0)}
    kept = store.trace("t1").chunks
    assert [(c.chunk_id, c.base_rank, c.origin, c.returned) for c in kept] == [
        ("refund", 1, "injected", True),
        ("keys", 0, "base", False),
    ]


def test_namespaces_share_nothing(store):
    traced(store)
    store.rate("t1", 5, target=REFUND)
    other = store.scoped("other")
    assert sums(other) == {}
    assert other.trace("t1") is None
    with pytest.raises(UnknownTraceError, match="namespace"):
        other.rate("t1", 5)
    traced(other, "t2")
    other.rate("t2", 1, target=REFUND)
    assert (sums(store), sums(other)) == ({"refund": (1, 0)}, {"refund": (0, 1)})


# -- raw ratings and windows


def test_raw_ratings_are_added_up_for_a_question_or_for_all(store):
    traced(store)
    store.rate("t1", 5)
    store.rate("t1", 2, actor="bob")
    store.rate("t1", 4, target=REFUND, actor="eve")
    traced(store, "t2", [REFUND], question="Another one?")
    store.signal("t2", "thumbs_down")
    cells = store.cells_of([REFUND, KEYS, SERVERS])
    total, count = store.ratings_for(cells, question=QUESTION)
    assert (total.tolist(), count.tolist()) == ([11, 7, 0], [3, 2, 0])
    total, count = store.ratings_for(cells)
    assert (total.tolist(), count.tolist()) == ([12, 7, 0], [4, 2, 0])


def test_votes_in_a_window_count_under_any_question(store):
    traced(store)
    store.rate("t1", 5, target=REFUND)
    traced(store, "t2", [REFUND], question="Another one?")
    store.rate("t2", 1, target=REFUND)
    cells = store.cells_of([REFUND, KEYS])
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    positive, negative, votes = store.votes_for(cells, since=hour_ago)
    assert (positive.tolist(), negative.tolist(), votes.tolist()) == ([1, 0], [1, 0], [2, 0])
    assert store.votes_for(cells, since=datetime.now(UTC))[2].tolist() == [0, 0]


# -- migrations


def test_the_tables_are_what_this_release_reads(url):
    with FeedbackStore(url) as store, store._reading() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_name": lambda name, *_: name != "lcf_version"}
        )
        (metadata,) = {one.metadata for one in (schema, learning_schema, care_schema)}
        assert compare_metadata(context, metadata) == []


def test_upgrading_an_older_database_keeps_its_rows(url):
    with FeedbackStore(url) as store:
        traced(store)
        store.rate("t1", 5)
        before = table(store)

        def add_column(op):
            op.add_column("lcf_signals", sa.Column("extra", sa.String(), server_default="told"))

        newer = (*running.MIGRATIONS, add_column)
        with store._database.writing() as connection:
            running.migrate(connection, newer)
            running.migrate(connection, newer)
            assert running.version_of(connection) == len(newer)
        assert table(store) == before
        with store._reading() as connection:
            kept = connection.execute(sa.text("SELECT extra, rating FROM lcf_signals")).all()
        assert [tuple(row) for row in kept] == [("told", 5)]

    with pytest.raises(StoreVersionError, match="Upgrade"):
        FeedbackStore(url).setup()


def test_many_processes_may_start_at_once_on_an_empty_database(url):
    program = (
        "import sys; from langchain_feedback.store.feedback_store import FeedbackStore\n"
        "from langchain_core.documents import Document\n"
        "store = FeedbackStore(sys.argv[1])\n"
        "store.record_trace(sys.argv[2], 'refund?', [Document('14 days', id='refund')])\n"
        "store.rate(sys.argv[2], 5, target='refund', actor=sys.argv[2])\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, url, f"t{number}"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(6)
    ]
    for process in started:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    with FeedbackStore(url) as store:
        assert round(store.evidence_for("refund?").cells[0].positive, 3) == 6


# -- what a second reading found


def test_one_person_by_name_and_by_default_is_one_key(store):
    traced(store, actor="ann")
    store.rate("t1", 5)
    latest = store.rate("t1", 1, actor="ann")
    cells = store.cells_of([REFUND])
    assert [column.tolist() for column in store.ratings_for(cells)] == [[1], [1]]
    store.retract(latest)
    assert sums(store) == {}, "the 5 does not come back"


def test_a_trace_is_of_one_question(store):
    traced(store)
    with pytest.raises(TraceReusedError, match="new_trace_id"):
        traced(store, question="Another one?")
    with pytest.raises(TraceReusedError):
        store.update_trace("t1", answer="42", asked=["Another one?"])
    store.update_soon("t1", answer="42", asked=["Another one?"])
    assert store.trace("t1").answer is None
    store.update_trace("t1", answer="14 days", asked=["Another one?", QUESTION])
    assert store.trace("t1").answer == "14 days"


@pytest.mark.parametrize("marks", ["good", ["good"], 7, {"base_rank": "1", "belief": [2]}])
def test_metadata_of_other_peoples_making_break_nothing(store, marks):
    odd = {"feedback": marks, "relevance_score": {"high": True}}
    document = REFUND.model_copy(update={"metadata": odd})
    store.record_soon("t1", QUESTION, [document])
    store.rate("t1", 5, target=document)
    assert len(store.evidence_for(QUESTION).cells) == 1


@pytest.mark.parametrize("question", ["", "  ", "\n"])
def test_what_cannot_be_recorded_is_told_and_costs_no_answer(store, question, caplog):
    with pytest.raises(ValueError, match="no question"):
        store.record_trace("t1", question, [REFUND])
    with caplog.at_level(logging.WARNING):
        store.record_soon("t1", question, [REFUND])
        store.record_soon("t2", QUESTION, [REFUND], vector=[float("nan")])
        store.update_soon("t1", grades={"refund": "YES"})
    assert "no question" in caplog.text
    assert store.trace("t1") is store.trace("t2") is None


def test_a_click_is_about_one_source_and_a_grade_is_one_of_three(store):
    traced(store)
    with pytest.raises(ValueError, match="target"):
        store.signal("t1", "source_click")
    with pytest.raises(ValueError, match="'YES'"):
        store.update_trace("t1", grades={"refund": "YES"})
    with pytest.raises(UnknownChunkError):
        store.update_trace("t1", grades={"servers": "yes"})


def test_a_scope_is_made_once_and_closed_with_its_root(store):
    tenant = store.scoped("tenant")
    assert store.scoped("tenant") is tenant
    assert tenant.scoped(store.namespace) is store
    with tenant:
        traced(tenant)
    traced(store, "t2")
    assert store.trace("t2") is not None


def test_a_scope_of_a_database_in_memory_takes_nothing_along():
    with FeedbackStore("sqlite://") as store:
        traced(store)
        with store.scoped("tenant"):
            pass
        assert store.trace("t1") is not None


def test_votes_of_another_namespace_stay_there(store):
    traced(store)
    store.rate("t1", 5, target=REFUND, actor="ann")
    [question] = store.evidence_for(QUESTION).questions
    cells = store.cells_of([REFUND])
    assert [row.actor for row in store.votes_on([question.question_id], cells)] == ["ann"]
    assert store.scoped("other").votes_on([question.question_id], cells) == []


def test_a_half_life_that_two_set_at_once_is_one_of_them_for_all(url):
    with FeedbackStore(url) as store:
        for number in range(5):
            traced(store, f"t{number}")
            store.rate(f"t{number}", 5, target=REFUND, actor=f"u{number}")
        old = schema.signals.update().values(received_at=datetime.now(UTC) - timedelta(days=40))
        with store._writing() as (connection, _):
            connection.execute(old)
        store.rebuild_evidence()
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(lambda days: FeedbackStore(url, half_life_days=days).setup(), [9, 30, 70])
            )
        before = table(store)
        store.rebuild_evidence()
        assert table(store) == before


def test_a_vote_that_a_dead_process_left_waiting_is_found_by_a_rebuild(store):
    store.rate("t1", 5, target="refund", pending=True)
    with store._writing() as (connection, _):
        tracing.write_trace(
            connection,
            store.namespace,
            incoming.new_trace(
                "t1", Question(QUESTION), [REFUND], attempt=1, query=None, id_field=None,
                created_at=datetime.now(UTC), facts={},
            ),
        )  # fmt: skip
    assert sums(store) == {}
    store.rebuild_evidence()
    assert sums(store) == {"refund": (1, 0)}


def test_two_writers_of_vectors_get_a_number_each(url):
    """Votes first, vectors later: an open process finds both questions."""
    vectors = {f"q{n}": [1.0, n / 100] for n in range(8)}
    with FeedbackStore(url) as store:
        for name in vectors:
            traced(store, name, question=name)
            store.rate(name, 5, target=REFUND)
        assert store.evidence_for("q0", vector=[1, 0]).cells
        with ThreadPoolExecutor(8) as pool:
            writes = [
                pool.submit(store.record_trace, f"again {name}", name, [REFUND], vector=vector)
                for name, vector in vectors.items()
            ]
        for write in writes:
            write.result()
        found = store.evidence_for("another", vector=[1, 0.04], min_similarity=0.9)
        assert {question.text for question in found.questions} == set(vectors)


def test_more_voters_on_one_trace_than_a_statement_has_parameters(store):
    """4,200 people rate one answer whose citations come later."""
    documents = [Document(f"Text {n}.", id=str(n)) for n in range(4)]
    traced(store, documents=documents)
    with store._writing() as (connection, half_life):
        row = voting.Event("t1", "rating", datetime.now(UTC), rating=5).as_row(store.namespace)
        rows = [
            row | {"event_id": f"e{n}", "actor": f"u{n}", "attached": True} for n in range(4_200)
        ]
        connection.execute(schema.signals.insert(), rows)
        evidence.recredit(connection, store.namespace, ["t1"], half_life)
    store.update_trace("t1", cited=[documents[0]])
    [cell] = store.evidence_for(QUESTION).cells
    assert cell.positive == 4_200


def test_injected_chunks_have_the_documents_own_id_back(store):
    document = Document("Text.", id="own", metadata={"_id": 7, "sku": 42})
    nameless = Document("Other text.", metadata={"_id": 8, "sku": 43})
    store.record_trace("t1", QUESTION, [document, nameless], id_field="sku")
    cells = store.cells_of([document, nameless], id_field="sku")
    found = store.snapshots(cells)
    assert [found[cell][0].document for cell in cells] == [document, nameless]
    store.rate("t1", 5, target=document, id_field="sku")
    assert [cell.key for cell in store.evidence_for(QUESTION).cells] == cells[:1]


def test_a_snapshot_is_renewed_when_its_metadata_change(store):
    traced(store, documents=[REFUND])
    secret = REFUND.model_copy(update={"metadata": {"source": "faq.md", "acl": "secret"}})
    traced(store, "t2", documents=[secret])
    [cell] = store.cells_of([REFUND])
    assert store.snapshots([cell])[cell][0].document.metadata["acl"] == "secret"


def test_a_database_that_is_emptied_while_open_works_again(url):
    with FeedbackStore(url) as store:
        traced(store)
        with store._database.writing(lock="all") as connection:
            schema.metadata.drop_all(connection)
            connection.execute(sa.text("DROP TABLE lcf_version"))
        with pytest.raises(StoreError):
            store.trace("t1")
        assert store.trace("t1") is None
        traced(store)


def test_a17_a_database_in_memory_may_have_a_name():
    with FeedbackStore("sqlite:///file:named?mode=memory&cache=shared&uri=true") as store:
        traced(store)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: store.rate("t1", 5, target=REFUND, actor=f"u{n}"), range(40)))
        assert sums(store) == {"refund": (40, 0)}


def test_the_cache_of_embeddings_is_no_model_of_its_own():
    cached = CacheBackedEmbeddings.from_bytes_store(
        Directions(), InMemoryByteStore(), namespace="x", key_encoder="sha256"
    )
    assert FeedbackStore("sqlite://", embeddings=cached).embedder == "Directions/"
