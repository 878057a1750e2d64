"""`langchain-feedback index sync --drop-copies`: one chunk of each text, and which one."""

from langchain_feedback.index.health import check_health
from tests.unit_tests.cli.index_kit import MODULE, TEXTS

FEE = TEXTS["fee"][1]


def test_copies_are_left_out_only_where_that_is_asked(site):
    site.synced()
    before = site.rows()
    found = site.json("sync", "--drop-copies", code=1)
    assert found["copies"] == [{"chunk": "copy", "of": "fee"}]
    assert (found["index"]["remove"], found["catalog"]["missing"]) == (["copy"], ["copy"])
    printed = site.run("sync", "--drop-copies", code=1)
    assert "Left out as copies: 1" in printed
    assert "remove   missing   b.md     copy    copy of fee" in printed
    assert site.rows() == before
    site.follow(printed)
    assert set(site.held()) == set(TEXTS) - {"copy"}
    assert "agree" in site.run("sync", "--drop-copies")
    assert "No chunk" in site.run("duplicates", "--exact", "--catalog")
    back = site.json("sync", code=1)
    assert (back["index"]["add"], back["catalog"]["returned"]) == (["copy"], ["copy"])


def test_duplicates_name_the_step_only_where_there_are_copies(site):
    printed = site.run("duplicates", "--namespace", "default", "--threshold", "0.95", code=1)
    step = printed.strip().splitlines()[-1]
    assert step.endswith("--drop-copies")
    assert "--namespace default" in step
    assert "copies: 1" in site.follow(step, code=1)
    site.write({key: of for key, of in TEXTS.items() if key != "copy"})
    assert "--drop-copies" not in site.run("duplicates", code=1)


def test_the_one_that_is_there_stays_though_the_loader_brings_another_first(site):
    site.write({"fee": ("a.md", FEE), "days": TEXTS["days"]})
    site.synced()
    site.write({"new": ("z.md", FEE.upper()), "fee": ("a.md", FEE), "days": TEXTS["days"]})
    found = site.json("sync", "--drop-copies", code=1)
    assert found["copies"] == [{"chunk": "new", "of": "fee"}]
    assert found["index"] == {"add": [], "replace": [], "repair": [], "remove": [], "keep": 2}
    [shown] = site.json("duplicates", "--exact", code=1)["duplicates"]
    assert (shown["chunk"], shown["of"]) == ("new", "fee")
    site.follow(site.run("sync", "--drop-copies", code=1))
    assert set(site.held()) <= {"fee", "days"}
    # Once its source is gone, the other takes its place.
    site.write({"new": ("z.md", FEE.upper()), "days": TEXTS["days"]})
    found = site.json("sync", "--drop-copies", code=1)
    assert (found["index"]["add"], found["index"]["remove"]) == (["new"], ["fee"])
    assert found["catalog"]["returned"] == ["new"]


def test_what_is_hidden_or_junk_stands_for_nothing(site):
    site.write({"toc": ("a.md", "Contents"), "again": ("b.md", "CONTENTS"), "fee": TEXTS["fee"]})
    found = site.json("sync", "--drop-copies", "--drop-junk", code=1)
    assert [one["chunk"] for one in found["junk"]] == ["toc", "again"]
    assert found["copies"] == []
    site.write({key: TEXTS[key] for key in ("fee", "copy", "days")})
    site.synced()
    with site.store() as store:
        # A person took the first one out: the other still says what it says.
        managed = site.module().index()
        wanted = managed.wanted(store, managed.load(), drop_copies=True)
        assert [one.id for one, _ in wanted.copies] == ["copy"]
        hide(store, "fee")
        wanted = managed.wanted(store, managed.load(), drop_copies=True)
        assert wanted.copies == ()
        assert [one.id for one in wanted.documents] == ["fee", "copy", "days"]


def test_two_scopes_and_other_numbers_are_no_copies(site):
    code = (site.folder / f"{MODULE}.py").read_text()
    (site.folder / f"{MODULE}.py").write_text(
        code.replace('name="site"', 'name="site", scope_field="source"')
    )
    assert site.json("sync", "--drop-copies", code=1)["copies"] == []


def test_an_index_can_say_that_junk_and_copies_stay_out(site):
    tidy = {"index": f"{MODULE}:tidy"}
    found = site.json("sync", code=1, **tidy)
    assert ([one["chunk"] for one in found["junk"]], len(found["copies"])) == (["toc"], 1)
    site.follow(site.run("sync", code=1, **tidy))
    assert set(site.held()) == set(TEXTS) - {"copy", "toc"}
    found = site.json("sync", "--keep-junk", code=1, **tidy)
    assert (found["index"]["add"], len(found["copies"])) == (["toc"], 1)
    printed = site.run("sync", "--keep-junk", "--keep-copies", code=1, **tidy)
    site.follow(printed)
    assert set(site.held()) == set(TEXTS)


def test_junk_that_somebody_restored_stays(site):
    site.synced()
    site.run("score", code=1)
    site.follow(site.run("retire", code=1))
    [run] = site.json("restore")
    assert "allowed by you now" in site.run("restore", run["run"], "--apply")
    assert site.json("allow")[0]["chunks"] == ["toc"]
    assert site.json("sync", "--drop-junk")["junk"] == []
    changed = TEXTS | {"toc": ("a.md", "Index")}  # of this text nobody said anything
    site.write(changed)
    assert len(site.json("sync", "--drop-junk", code=1)["junk"]) == 1


def test_what_goes_is_shown_with_its_source(site):
    site.synced()
    site.write({key: of for key, of in TEXTS.items() if key != "mail"})
    assert "remove   missing   b.md     mail" in site.run("sync", code=1)


def test_health_is_clean_of_what_was_left_out_as_a_copy(site):
    site.write({"fee": TEXTS["fee"], "same": ("b.md", FEE), "days": TEXTS["days"]})
    site.synced()
    site.follow(site.run("sync", "--drop-copies", "--force", code=1))
    site.run("score")
    with site.store() as store:
        health = check_health(store, site.module().index())
    assert (health.exit_code, health.get("coverage").figures["chunks"]) == (0, 2)


def hide(store, key):
    from sqlalchemy import update  # noqa: PLC0415

    from langchain_feedback.store.schema import chunks  # noqa: PLC0415
    from langchain_feedback.store.transactions import writing  # noqa: PLC0415

    with writing(store, lock="traces") as (connection, _):
        connection.execute(update(chunks).where(chunks.c.chunk_id == key).values(status="demoted"))
