"""The registry of versions: what is switched, what is kept, what is told."""

import json
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from langchain_feedback.errors import StoreRejectedError
from langchain_feedback.index.versions import (
    IndexRegistry,
    UnknownVersionError,
    VersionConflictError,
    VersionRefusedError,
)
from langchain_feedback.store.care_schema import index_versions
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.schema import chunks, evidence
from langchain_feedback.store.transactions import reading, writing
from tests.unit_tests.index.version_kit import (
    PAGES,
    Model,
    as_before,
    build,
    documents,
    follow,
    one_page,
    opener,
    prepared,
    promote,
    question,
    rated,
    states,
)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'feedback.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def both(url):
    """A store on each database."""
    with FeedbackStore(url, timeout_s=20) as opened:
        yield opened


@pytest.fixture
def store():
    with FeedbackStore("sqlite://", timeout_s=20) as opened:
        yield opened


@pytest.fixture
def registry(store, tmp_path):
    return prepared(store, tmp_path, "v1")


def aged(registry, version, hours):
    """Make a version's retirement so old."""
    row = index_versions.c
    with writing(registry.store) as (connection, _):
        [at] = connection.execute(select(row.retired_at).where(row.version == version)).scalars()
        older = at - timedelta(hours=hours)
        connection.execute(
            update(index_versions).where(row.version == version).values(retired_at=older)
        )


# -- states and switches


def test_a_version_goes_from_building_over_ready_to_active_and_retired(both, tmp_path):
    registry = IndexRegistry(both)
    assert registry.active() is None
    locator = build(tmp_path, "v1")
    made = registry.register("v1", Model("v1"), locator=locator)
    assert (made.status, made.locator, made.embedder.model) == ("building", locator, "v1")
    ready = registry.ready("v1", open_version=opener(), chunk_count=PAGES)
    assert (ready.status, ready.chunk_count, ready.activated_at) == ("ready", PAGES, None)
    switched = registry.activate("v1", expected=None, actor="ann")
    assert (switched.active.version, switched.before, switched.untold) == ("v1", None, {})
    promote(registry, tmp_path, "v2")
    assert states(registry) == {"v1": "active", "v2": "ready"}
    assert registry.activate("v2", expected="v1").before == "v1"
    assert states(registry) == {"v1": "retired", "v2": "active"}
    old, new = registry.versions()
    assert old.retired_at == new.activated_at
    assert (old.retired_at > old.activated_at, new.retired_at) == (True, None)
    assert [(one.seq, one.version, one.before, one.actor) for one in registry.history()] == [
        (1, "v1", None, "ann"),
        (2, "v2", "v1", None),
    ]


def test_an_activation_that_expects_another_version_changes_nothing(both, tmp_path):
    registry = prepared(both, tmp_path, "v1", "v2", "v3")
    registry.activate("v2", expected="v1")
    before = registry.versions()
    for expected in ("v1", None, "v3"):
        with pytest.raises(VersionConflictError, match="The active version is 'v2'"):
            registry.activate("v3", expected=expected)
    with pytest.raises(VersionConflictError):
        registry.rollback(expected="v1")
    assert registry.versions() == before
    assert len(registry.history()) == 2


def test_activating_what_is_active_changes_nothing(registry):
    before = registry.versions()
    assert registry.activate("v1", expected="v0").before == "v1"
    assert (registry.versions(), len(registry.history())) == (before, 1)


def test_of_many_who_switch_at_once_one_wins(both, tmp_path):
    names = [f"v{number}" for number in range(1, 6)]
    registry = prepared(both, tmp_path, "v0", *names)
    start, won, lost = threading.Barrier(len(names)), [], []

    def switch(name):
        start.wait()
        try:
            won.append(registry.activate(name, expected="v0").active.version)
        except VersionConflictError:
            lost.append(name)

    threads = [threading.Thread(target=switch, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 4)
    assert registry.active().version == won[0]
    assert [one.version for one in registry.history()] == ["v0", *won]


def test_the_database_itself_keeps_one_version_active(both, tmp_path):
    registry = prepared(both, tmp_path, "v1", "v2")
    mine = index_versions.c.version == "v2"
    with pytest.raises(StoreRejectedError), writing(both) as (connection, _):
        connection.execute(update(index_versions).where(mine).values(status="active"))
    assert registry.active().version == "v1"


def test_only_what_is_ready_can_be_activated(registry, tmp_path):
    registry.register("v2", Model("v2"), locator=build(tmp_path, "v2"))
    with pytest.raises(VersionRefusedError, match="Check it first"):
        registry.activate("v2", expected="v1")
    with pytest.raises(UnknownVersionError, match="v9"):
        registry.activate("v9", expected="v1")
    assert states(registry) == {"v1": "active", "v2": "building"}


@pytest.mark.parametrize("was", ["building", "ready"])
def test_what_was_given_up_before_it_was_active_stays_so(both, tmp_path, was):
    registry = prepared(both, tmp_path, "v1")
    registry.register("v2", Model("v2"), locator=build(tmp_path, "v2"))
    if was == "ready":
        registry.ready("v2", open_version=opener(), chunk_count=PAGES)
    registry.retire("v2")
    with pytest.raises(VersionRefusedError, match="given up"):
        registry.activate("v2", expected="v1")
    assert states(registry) == {"v1": "active", "v2": "retired"}


def test_a_rollback_takes_no_unchecked_build_for_a_version_of_the_same_name(registry, tmp_path):
    for name, before in (("v2", "v1"), ("v3", "v2")):
        promote(registry, tmp_path, name)
        registry.activate(name, expected=before)
    with writing(registry.store) as (connection, _):
        long_ago = {"retired_at": datetime(2026, 1, 1, tzinfo=UTC)}
        gone = index_versions.c.version == "v1"
        connection.execute(update(index_versions).where(gone).values(long_ago))
    registry.drop("v1", lambda _: None)
    registry.register("v1", Model("v1"), locator={"path": "another build"})
    registry.retire("v1")
    assert registry.rollback().active.version == "v2"
    with pytest.raises(VersionRefusedError, match="given up"):
        registry.rollback()
    assert registry.active().version == "v2"


def test_each_activation_is_undone_once_newest_first(registry, tmp_path):
    for name, before in (("v2", "v1"), ("v3", "v2")):
        promote(registry, tmp_path, name)
        registry.activate(name, expected=before)
    assert registry.rollback().active.version == "v2"
    registry.activate("v3", expected="v2")
    assert [registry.rollback().active.version for _ in range(2)] == ["v2", "v1"]
    with pytest.raises(VersionRefusedError, match="no version to go back to"):
        registry.rollback()
    assert states(registry) == {"v1": "active", "v2": "retired", "v3": "retired"}


@settings(max_examples=20)
@given(st.lists(st.sampled_from(["v1", "v2", "v3", "back"]), max_size=12))
def test_rollbacks_follow_a_stack(steps):
    with FeedbackStore("sqlite://", timeout_s=20) as store:
        registry = IndexRegistry(store)
        for name in ("v1", "v2", "v3"):
            registry.register(name, None)
            registry.ready(name, open_version=one_page, chunk_count=1)
        stack = [None]
        for step in steps:
            if step != "back":
                registry.activate(step, expected=stack[-1])
                stack += [step] if step != stack[-1] else []
            elif len(stack) > 2:
                stack.pop()
                assert registry.rollback().active.version == stack[-1]
            else:
                with pytest.raises(VersionRefusedError):
                    registry.rollback()
            active = registry.active()
            assert (active.version if active else None) == stack[-1]


def test_namespaces_have_versions_of_their_own(store, tmp_path):
    mine = prepared(store, tmp_path, "v1", "v2")
    theirs = prepared(store.scoped("b"), tmp_path, "v2")
    mine.activate("v2", expected="v1")
    mine.rollback()
    assert (mine.active().version, theirs.active().version) == ("v1", "v2")
    assert [len(mine.history()), len(theirs.history())] == [3, 1]
    assert states(theirs) == {"v2": "active"}


def test_check8_killed_at_any_statement_before_the_commit_the_old_version_serves(url, tmp_path):
    command = [sys.executable, "-m", "tests.unit_tests.index.version_crashes", url, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["crashed"] for row in rows] == [-signal.SIGKILL] * (len(rows) - 1) + [0]
    served = [row["told"]["served"] for row in rows]
    switched = served.index(["v2"])
    for row in rows[:switched]:
        assert row["told"]["states"] == {"v1": "active", "v2": "ready"}
        assert row["told"]["journal"] == ["v1"]
    # A switch has several statements, of which none is kept without the others.
    assert switched >= 5
    for row in rows:
        served, states_ = row["told"]["served"], row["told"]["states"]
        assert [version for version, status in states_.items() if status == "active"] == served
        assert row["told"]["journal"][-1:] == served


# -- registering


def test_a_build_that_was_interrupted_goes_on_and_no_other_takes_its_name(registry, tmp_path):
    locator = build(tmp_path, "v2")
    first = registry.register("v2", Model("v2"), locator=locator)
    assert registry.register("v2", Model("v2"), locator=locator) == first
    for embedder, told in ((Model("v3"), locator), (Model("v2"), {"path": "x"}), (None, locator)):
        with pytest.raises(VersionConflictError, match="a name of its own"):
            registry.register("v2", embedder, locator=told)
    with pytest.raises(VersionConflictError, match="active"):
        registry.register("v1", Model("v1"), locator=registry.active().locator)


def test_names_and_locators_are_checked(registry):
    with pytest.raises(ValueError, match="needs a name"):
        registry.register(" ", None)
    with pytest.raises(ValueError, match="kept as JSON"):
        registry.register("v2", None, locator={"index": object()})


def test_an_index_without_an_embedder_needs_none(store):
    registry = IndexRegistry(store)
    assert registry.register("v1", None).embedder is None
    registry.ready("v1", open_version=one_page, chunk_count=1)
    registry.activate("v1", expected=None)
    [found] = follow(registry, open_version=one_page).invoke("q")
    assert found.metadata["feedback"] == {"index_version": "v1"}


# -- clearing up


def test_a_retired_version_is_kept_for_a_day_and_the_one_to_go_back_to_for_longer(both, tmp_path):
    registry = prepared(both, tmp_path, "v1", "v2", "v3")
    registry.activate("v2", expected="v1")
    registry.activate("v3", expected="v2")
    aged(registry, "v1", 23.9)
    assert registry.droppable() == []
    with pytest.raises(VersionRefusedError, match="24 hours"):
        registry.drop("v1", list)
    for version, hours in (("v1", 0.2), ("v2", 24.05)):
        aged(registry, version, hours)
    assert [one.version for one in registry.droppable()] == ["v1"]
    removed = []
    registry.drop("v1", lambda version: removed.append(version.locator["model"]))
    assert (removed, states(registry)) == (["v1"], {"v2": "retired", "v3": "active"})
    assert registry.rollback().active.version == "v2"
    with pytest.raises(UnknownVersionError, match="v1"):
        registry.rollback()
    assert registry.active().version == "v2"


def test_the_active_version_is_never_dropped_nor_given_up(registry):
    for call in (lambda: registry.drop("v1", list), lambda: registry.retire("v1")):
        with pytest.raises(VersionRefusedError):
            call()
    assert states(registry) == {"v1": "active"}


def test_after_a_rollback_the_one_that_was_taken_back_is_kept_as_well(registry, tmp_path):
    promote(registry, tmp_path, "v2")
    registry.activate("v2", expected="v1")
    registry.rollback()
    aged(registry, "v2", 1000)
    assert registry.droppable() == []


def test_a_build_that_is_given_up_can_be_dropped_after_a_day(registry, tmp_path):
    promote(registry, tmp_path, "v2")
    assert registry.retire("v2").status == "retired"
    assert registry.retire("v2").status == "retired"
    assert registry.droppable() == []
    aged(registry, "v2", 25)
    assert [one.version for one in registry.droppable()] == ["v2"]


def test_an_index_that_cannot_be_removed_is_forgotten_all_the_same(registry, tmp_path):
    promote(registry, tmp_path, "v2")
    registry.retire("v2")
    aged(registry, "v2", 25)

    def fail(version):
        raise OSError(version.version)

    with pytest.raises(OSError, match="v2"):
        registry.drop("v2", fail)
    assert states(registry) == {"v1": "active"}


# -- hooks


def test_hooks_are_told_after_the_commit_and_a_failing_one_undoes_nothing(store, tmp_path, caplog):
    registry, told = prepared(store, tmp_path, "v1", "v2"), []

    def spy(version):
        told.append((version.version, IndexRegistry(store).active().version))

    def broken(_):
        msg = "no such alias"
        raise ConnectionError(msg)

    hooked = IndexRegistry(store, hooks=[broken, spy])
    switched = hooked.activate("v2", expected="v1")
    assert told == [("v2", "v2")]
    assert switched.untold == {"0: broken": "ConnectionError: no such alias"}
    assert "broken was not told" in caplog.text
    assert registry.active().version == "v2"
    assert hooked.tell() == switched.untold
    assert told == [("v2", "v2")] * 2


def test_a_refused_switch_tells_nobody(store, tmp_path):
    prepared(store, tmp_path, "v1", "v2")
    told = []
    hooked = IndexRegistry(store, hooks=[told.append])
    with pytest.raises(VersionConflictError):
        hooked.activate("v2", expected="v0")
    assert told == []


def test_of_two_who_switch_at_once_the_last_word_is_the_newest_version(store, tmp_path):
    registry, told = prepared(store, tmp_path, "v1", "v2", "v3"), []

    def slow(version):
        if version.version == "v2" and not told:
            # Meanwhile somebody else switches on, and tells of it first.
            told.append("v3")
            registry.activate("v3", expected="v2")
        told.append(version.version)

    IndexRegistry(store, hooks=[slow]).activate("v2", expected="v1")
    assert told == ["v3", "v2", "v3"]


# -- evidence


def belief(store, page, document):
    cells = {cell.key: cell.positive for cell in store.evidence_for(question(page)).cells}
    return cells.get(store.cells_of([document])[0], 0.0)


def test_equal_texts_keep_their_evidence_and_moved_ones_get_it(both):
    registry = IndexRegistry(both)
    rated(both, "v1", range(4))
    old = documents("v1")
    new = as_before()
    for page in (1, 2):
        new[page] = new[page].model_copy(update={"metadata": {"source": f"moved/{page}.md"}})
    new[3] = new[3].model_copy(update={"page_content": f"{new[3].page_content} And more."})
    assert [belief(both, page, new[page]) for page in range(4)] == [1.0, 0.0, 0.0, 0.0]
    carried = registry.carry_evidence(old, new)
    assert (carried.kept, carried.lost) == (1, ())
    assert carried.moved == (("v1-1", "new-v1-1"), ("v1-2", "new-v1-2"))
    assert carried.contained == (("v1-3", "new-v1-3"),)
    assert [belief(both, page, new[page]) for page in range(4)] == [1.0, 1.0, 1.0, 0.0]
    with reading(both) as connection:
        before = connection.execute(select(evidence)).all()
    both.rebuild_evidence()
    with reading(both) as connection:
        assert sorted(connection.execute(select(evidence)).all()) == sorted(before)
    again = registry.carry_evidence(old, new)
    assert (again.kept, again.moved) == (3, ())


def test_a_later_vote_on_a_moved_chunk_counts_with_the_earlier_ones(store):
    rated(store, "v1", [0])
    [old], [new] = documents("v1", [0]), as_before([0])
    new = new.model_copy(update={"metadata": {"source": "moved.md"}})
    IndexRegistry(store).carry_evidence([old], [new])
    store.record_trace("later", question(0), [new])
    store.rate("later", 5, target=new, actor="ben")
    assert belief(store, 0, new) == pytest.approx(2.0, abs=1e-3)


def test_a_copy_beside_the_old_chunk_begins_without_evidence(store):
    rated(store, "v1", [0])
    old = documents("v1", [0])
    copied = old[0].model_copy(update={"id": "copy", "metadata": {"source": "other tenant"}})
    carried = IndexRegistry(store).carry_evidence(old, [*old, copied])
    assert (carried.kept, carried.moved, carried.lost) == (1, (), ())
    assert (belief(store, 0, old[0]), belief(store, 0, copied)) == (1.0, 0.0)


def test_evidence_of_what_is_gone_is_told_as_lost(store):
    rated(store, "v1", [0, 1])
    carried = IndexRegistry(store).carry_evidence(documents("v1"), as_before(range(1, PAGES)))
    assert (carried.kept, carried.moved, carried.lost) == (1, (), ("v1-0",))
    with reading(store) as connection:
        # Only chunks that get evidence are made known.
        assert len(connection.execute(select(chunks)).all()) == 2


def test_evidence_of_another_namespace_is_not_carried(store):
    rated(store.scoped("b"), "v1", [0])
    moved = as_before([0])[0].model_copy(update={"metadata": {"source": "moved.md"}})
    carried = IndexRegistry(store).carry_evidence(documents("v1"), [moved])
    assert (carried.kept, carried.moved, carried.lost) == (0, (), ())


# -- async


async def test_every_method_has_an_async_twin(store, tmp_path):
    registry = IndexRegistry(store)
    await registry.aregister("v1", Model("v1"), locator=build(tmp_path, "v1"))
    await registry.aready("v1", open_version=opener(), chunk_count=PAGES)
    await registry.aactivate("v1", expected=None)
    assert (await registry.aactive()).version == (await registry.aget("v1")).version == "v1"
    with pytest.raises(VersionRefusedError):
        await registry.arollback()
    public = [name for name in dir(registry) if not name.startswith("_")]
    plain = {name for name in public if callable(getattr(registry, name))}
    twins = {name for name in plain if name[0] == "a" and name[1:] in plain}
    assert twins == {f"a{name}" for name in plain - twins}
