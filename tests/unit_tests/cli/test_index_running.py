"""`langchain-feedback index foldback`, `versions`, `nightly`: what is shown, what changes."""

import json
import shutil

import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from langchain_feedback.cli.commands import app
from langchain_feedback.index.ledger import TableLedger
from langchain_feedback.index.versions import IndexRegistry
from langchain_feedback.store.care_schema import index_versions
from langchain_feedback.store.transactions import writing
from tests.unit_tests.cli.index_kit import INDEX, MODULE, document
from tests.unit_tests.index.version_kit import PAGES, Model, build, opener, prepared, states

PEOPLE = ("ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal")
OPENING = f"{MODULE}:opening"
QUESTION = "How long does a parcel take?"


@pytest.fixture
def liked(site):
    """An answer that eight people like, and its source in the index."""
    site.synced()
    with site.store() as store:
        store.record_trace("t2", QUESTION, [document("days")])
        store.update_trace(
            "t2", answer="A parcel takes 3 days to arrive.", status="answered", grounded=True,
            cited=[document("days")],
        )  # fmt: skip
        for person in PEOPLE:
            store.rate("t2", 5, actor=person)
    return site


# -- foldback


def test_an_accepted_answer_is_proposed_approved_and_written(liked):
    before = liked.rows()
    printed = liked.run("foldback", "run", code=1)
    assert "1 to propose; of the index of questions, 0 to write, 0 to remove" in printed
    [change] = liked.json("foldback", "run", code=1)["changes"]
    assert change["reason"] == "8 for, 0 against, of 8 people"
    assert liked.rows() == before
    assert "not the plan" in liked.run("foldback", "run", "--apply", "0" * 12, code=2)
    assert "1 propose" in liked.follow(printed)
    [entry] = liked.json("foldback", "list", "--status", "candidate")
    assert (entry["question"], entry["sources"][0]["chunk"]) == (QUESTION, "days")
    assert entry["derived_id"][:8] in liked.run("foldback", "list")
    done = liked.json("foldback", "approve", entry["derived_id"][:8], "--actor", "rita")
    assert (done["status"], done["approved_by"]) == ("active", "rita")
    assert liked.asked() == {entry["derived_id"]}
    assert liked.json("foldback", "run") == {
        "digest": liked.json("foldback", "run")["digest"],
        "changes": [],
        "index": {"add": 0, "replace": 0, "remove": 0, "repair": 0},
        "applied": None,
        "command": None,
    }


def test_an_entry_is_rejected_for_good_and_an_unknown_one_is_told(liked):
    liked.follow(liked.run("foldback", "run", code=1))
    [entry] = liked.json("foldback", "list")
    assert "does not serve" in liked.run("foldback", "reject", entry["derived_id"], "--by", "rita")
    assert [one["status"] for one in liked.json("foldback", "list")] == ["rejected"]
    assert liked.json("foldback", "list", "--status", "active") == []
    assert "candidate" in liked.run("foldback", "list", "--status", "good", code=2)
    assert "'none'" in liked.run("foldback", "approve", "none", code=2)
    assert "No folded-back" in liked.run("foldback", "approve", "", code=2)


def test_the_review_of_an_entry_says_what_makes_it_serve(liked):
    liked.follow(liked.run("foldback", "run", code=1))
    typed = ["loop", "review", "--reviewer", "ann"]
    printed = CliRunner().invoke(app, typed, input="1\nq\n").stdout
    assert "serves when `langchain-feedback index foldback run` has" in " ".join(printed.split())
    assert [one["status"] for one in liked.json("foldback", "list")] == ["active"]
    assert liked.json("health", code=1)["alarms"] == ["questions"]
    liked.run("foldback", "run", "--apply", "now")
    assert len(liked.asked()) == 1


def test_an_approval_beside_a_writer_says_what_is_done_and_what_is_not(liked):
    liked.run("score", code=1)
    liked.follow(liked.run("foldback", "run", code=1))
    with liked.store() as store:
        assert TableLedger(store, "foldback").claim("somebody", 60)
    told = liked.run(
        "foldback", "approve", liked.json("foldback", "list")[0]["derived_id"], code=2
    )
    assert "It is active, but the index of questions is not written yet" in told
    assert "The next `index foldback run` writes it" in told
    [entry] = liked.json("foldback", "list")
    assert (entry["status"], liked.asked()) == ("active", set())
    with liked.store() as store:
        TableLedger(store, "foldback").release("somebody")
    liked.follow(liked.run("foldback", "run", code=1))
    assert liked.asked() == {entry["derived_id"]}
    shutil.rmtree(liked.folder / "questions")
    [alarm] = liked.json("health", code=1)["alarms"]
    assert alarm == "questions"
    printed = liked.run("foldback", "run", code=1)
    assert "No entry to change; of the index of questions, 1 to write" in printed
    assert "No entry is to be changed" not in printed
    liked.follow(printed)
    assert "clean questions" in liked.run("health")


# -- versions


@pytest.fixture
def built(site):
    """Two versions, the first one active, and a third that is not ready."""
    with site.store() as store:
        registry = prepared(store, site.folder, "v1", "v2")
        registry.register("v3", Model("v3"), locator=build(site.folder, "v3"))
    return site


def active(site):
    with site.store() as store:
        return IndexRegistry(store).active().version


def test_activating_is_shown_first_and_needs_to_know_what_it_replaces(built):
    shown = built.run("versions", "list", index=None)
    assert [line.split()[:2] for line in shown.splitlines()[2:]] == [
        ["v1", "active"], ["v2", "ready"], ["v3", "building"],
    ]  # fmt: skip
    before = built.rows()
    printed = built.run("versions", "activate", "v2", code=1)
    assert "v1 -> v2" in printed
    assert f"{PAGES} chunks, and {PAGES} before" in printed
    assert printed.splitlines()[-1] == (
        f"langchain-feedback index versions activate v2 --index {INDEX} --expect v1 --apply"
    )
    refused = built.run("versions", "activate", "v2", "--apply", code=2)
    assert refused.strip().endswith("--expect v1 --apply")
    assert "somebody was faster" in built.run(
        "versions", "activate", "v2", "--expect", "v0", "--apply", code=2
    )
    assert "v3' is building" in built.run("versions", "activate", "v3", code=2)
    assert "no version 'v9'" in built.run("versions", "activate", "v9", code=2)
    assert built.rows() == before
    built.follow(printed)
    assert (active(built), built.module().TOLD) == ("v2", ["v2"])
    assert "active already" in built.run("versions", "activate", "v2")


def test_a_rollback_is_one_command_and_works_with_a_broken_app(built):
    switch = ("versions", "activate", "v2", "--expect", "v1", "--apply")
    assert built.json(*switch) == {"active": "v2", "before": "v1", "untold": {}}
    assert "somebody was faster" in built.run("versions", "rollback", "--expect", "v1", code=2)
    assert active(built) == "v2"
    assert "Version v1 is active, before v2" in built.run("versions", "rollback", "--by", "rita")
    assert active(built) == "v1"
    built.run(*switch)
    found = built.json("versions", "rollback", index="no_such_app:index", code=1)
    assert "no_such_app" in found["untold"]["0: index"]
    assert active(built) == "v1"
    built.run("versions", "activate", "v1", "--apply")  # tells the hooks
    assert built.module().TOLD[-1] == "v1"
    assert "no version to go back to" in built.run("versions", "rollback", code=2)


def test_a_hook_that_fails_is_told_after_the_switch(built):
    built.run("versions", "list", index=None)
    built.run("foldback", "list")  # imports the module
    built.module().TOLD = None
    printed = built.run("versions", "activate", "v2", "--expect", "v1", "--apply", code=1)
    assert "Version v2 is active, before v1" in printed
    assert "Not told:" in printed
    assert printed.splitlines()[-1] == (
        f"langchain-feedback index versions activate v2 --index {INDEX} --apply"
    )
    assert active(built) == "v2"


def test_a_version_that_cannot_be_opened_is_not_switched_to_unless_forced(built):
    switch = ("versions", "activate", "v2", "--expect", "v1")
    of = {"index": OPENING}
    assert "v1 -> v2" in built.run(*switch, code=1, **of)
    (built.folder / "v2.json").rename(built.folder / "away.json")
    before = built.rows()
    for more in ((), ("--apply",)):
        told = built.run(*switch, *more, code=2, **of)
        assert "Nothing was changed. Of version 'v2': it cannot be opened: FileNotFound" in told
    assert built.rows() == before
    built.run(*switch, "--apply", "--force", **of)
    assert active(built) == "v2"
    (built.folder / "v1.json").rename(built.folder / "v2.json")  # and v1 is gone now
    assert "'v1': it cannot be opened" in built.run("versions", "rollback", code=2, **of)
    assert active(built) == "v2"
    assert "Version v1 is active" in built.run("versions", "rollback", "--force", **of)
    built.run("versions", "rollback", code=2, **of)  # nothing to go back to
    built.run(*switch[:3], "--apply", "--force", "--expect", "v1", **of)
    built.run("versions", "rollback", code=1, index="no_such_app:index")  # nobody can look
    assert active(built) == "v1"


def test_a_version_that_is_opened_with_another_embedder_is_refused(built):
    locator = {"path": str(built.folder / "v2.json"), "model": "v1"}
    with built.store() as store, writing(store) as (connection, _):
        row = index_versions.c
        of = update(index_versions).where(row.version == "v2")
        connection.execute(of.values(locator=json.dumps(locator)))
    refused = built.run("versions", "activate", "v2", "--expect", "v1", "--apply", code=2,
                        index=OPENING)  # fmt: skip
    assert "another embedder" in refused
    assert active(built) == "v1"


def test_versions_as_json_and_checks_that_were_not_passed(built):
    with built.store() as store:
        registry = IndexRegistry(store)
        with pytest.raises(Exception, match="below 95 %"):
            registry.ready("v3", open_version=opener(), chunk_count=1)
        assert states(registry)["v3"] == "building"
    assert "below 95 %" in " ".join(built.run("versions", "activate", "v3", code=2).split())
    found = built.json("versions", "list", index=None)
    assert [one["version"] for one in found] == ["v1", "v2", "v3"]
    assert (found[0]["embedder"]["dimension"], "probes" in found[0]["embedder"]) == (16, False)
    assert built.json("versions", "activate", "v2", code=1)["active"] == "v1"


# -- nightly


def test_a_night_plans_unless_it_is_told_to_apply(liked):
    planned = liked.json("nightly", code=1)
    assert [(step["name"], step["status"]) for step in planned["steps"]] == [
        ("score", "done"), ("foldback", "planned"), ("retirement", "planned"), ("health", "done"),
    ]  # fmt: skip
    assert planned["health"]["exit_code"] == 0
    assert liked.json("foldback", "list") == []
    printed = liked.run("nightly", "--shard", "2/2", code=1)
    assert "chunks, 0 texts judged now" in printed
    done = liked.follow(printed)
    assert "planned" not in done
    assert len(liked.json("foldback", "list")) == 1
    assert [run["hidden"] for run in liked.json("restore")] == [1]


def test_a_night_without_anything_to_look_at_ends_with_0(site):
    texts = json.loads((site.folder / "documents.json").read_text())
    del texts["toc"]
    site.write(texts)
    site.synced()
    night = site.json("nightly", "--apply")
    assert (night["exit_code"], len(night["steps"])) == (0, 4)
