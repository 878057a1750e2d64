"""`langchain-feedback index`: dry runs, what is applied, and what is refused."""

import json
import os
import subprocess
import sys
from datetime import timedelta

import pytest
from sqlalchemy import make_url, update

from langchain_feedback.index.gate import QualityGate
from langchain_feedback.store.care_schema import care_actions, care_runs
from langchain_feedback.store.transactions import writing
from tests.unit_tests.cli.index_kit import INDEX, MODULE, TEXTS, Site

OTHER = "0123456789ab"
SECRET = "k3y"  # noqa: S105  of a server that asks for none


def digest_of(printed):
    return printed.split()[-1]


def text(key):
    return TEXTS[key][1]


# -- sync


def test_a_dry_sync_writes_nothing_and_its_last_line_applies_it(site):
    before = site.rows()
    printed = site.run("sync", "--database", "feedback.db", "--limit", "3", code=1)
    assert "site: 7 to add, 0 stay; catalog: 7 new." in printed
    assert "4 more" in printed
    assert site.rows() == before
    assert not (site.folder / "faiss").exists()
    assert printed.splitlines()[-1].startswith(
        f"langchain-feedback index sync --database feedback.db --index {INDEX} --apply "
    )
    assert "7 written, 0 removed" in site.follow(printed)
    assert site.held() == {key: text(key) for key in TEXTS}
    assert "Documents, catalog and index agree" in site.run("sync")
    after = site.rows()
    site.follow(printed)  # it is done already
    assert site.rows() == after


def test_only_the_digest_that_was_reviewed_is_applied(site):
    reviewed = digest_of(site.run("sync", code=1))
    [line] = site.run("sync", "--apply", code=2).splitlines()
    assert "takes the digest" in line
    assert line.endswith(f"--apply {reviewed}")
    [line] = site.run("sync", "--apply", "--json", code=2).splitlines()
    assert line.endswith(f"--apply {reviewed}")
    assert f"not the plan '{OTHER}'" in site.run("sync", "--apply", OTHER, code=2)
    assert "not the plan" in site.run("sync", "--apply", reviewed[:6], code=2)
    site.write(TEXTS | {"new": ("e.md", "Something else takes 9 days.")})
    assert f"not the plan '{reviewed}'" in site.run("sync", "--apply", reviewed, code=2)
    assert not (site.folder / "faiss").exists()
    whole = site.json("sync", code=1)
    done = site.json("sync", "--apply", whole["digest"])
    assert (done["applied"]["written"], done["command"]) == (8, None)
    assert whole["command"].endswith(whole["digest"][:12])


def test_many_removals_need_force_and_an_empty_loader_is_refused(site):
    site.synced()
    site.write({key: TEXTS[key] for key in ("fee", "days", "pump")})
    printed = site.run("sync", code=1)
    assert "It removes 4 of 7 documents: without --force it is refused" in printed
    digest = digest_of(printed)
    assert "add --force" in site.run("sync", "--apply", digest, code=2)
    assert len(site.held()) == 7
    assert site.json("sync", code=1)["needs_force"]
    assert "0 written, 4 removed" in site.run("sync", "--apply", digest, "--force")
    assert set(site.held()) == {"fee", "days", "pump"}
    assert "4 missing" not in site.run("sync")
    site.write({})
    assert "returned no documents" in site.run("sync", "--force", code=2)
    assert "returned no documents" in site.run("sync", "--apply", digest, "--force", code=2)
    assert len(site.held()) == 3


def test_junk_is_left_out_only_where_that_is_asked(site):
    site.synced()
    site.run("score", code=1)
    site.run("sync")  # known as junk, and still wanted
    before = site.rows()
    found = site.json("sync", "--drop-junk", code=1)
    assert found["junk"] == [{"chunk": "toc", "reasons": ["no_statement"]}]
    assert (found["index"]["remove"], found["catalog"]["missing"]) == (["toc"], ["toc"])
    printed = site.run("sync", "--drop-junk", code=1)
    assert "remove   missing   a.md     toc     no_statement" in printed
    assert site.rows() == before
    site.follow(printed)
    assert set(site.held()) == set(TEXTS) - {"toc"}
    assert "Left out as junk: 1" in site.run("sync", "--drop-junk")


def test_looking_for_junk_judges_nothing_for_good(site):
    before = site.rows()
    assert site.json("sync", "--drop-junk", code=1)["junk"]
    assert site.rows() == before  # a kept score hides a chunk at query time
    site.follow(site.run("sync", "--drop-junk", code=1))
    with site.store() as store:
        junk = next(one for one in site.module().load() if one.id == "toc")
        assert QualityGate(store).hidden([junk]) == {0: ("no_statement",)}
    # What no index holds is known all the same: an alarm about new junk can see it.
    [row] = [one for one in site.rows()["lcf_chunks"] if "'toc'" in one]
    assert "'missing'" in row
    assert "agree" in site.run("sync", "--drop-junk")
    assert site.json("sync", code=1)["catalog"]["returned"] == ["toc"]


def test_documents_without_ids_are_one_row_each(site):
    code = (site.folder / f"{MODULE}.py").read_text().replace("id=key, ", "")
    (site.folder / f"{MODULE}.py").write_text(code)
    printed = site.run("sync", code=1)
    rows = [line for line in printed.splitlines() if line.startswith("add")]
    assert len(rows) == 7
    assert all(row.split()[1] == "new" for row in rows)
    site.follow(printed)
    assert "agree" in site.run("sync")


def test_a_job_at_night_applies_what_there_is_now_and_lifts_no_guard(site):
    assert site.json("sync", "--apply", "now")["applied"]["written"] == 7
    assert site.json("sync", "--apply", "now")["applied"] is None  # nothing to do: no failure
    site.write({key: TEXTS[key] for key in ("fee", "days", "pump")})
    assert "add --force" in site.run("sync", "--apply", "now", code=2)
    assert len(site.held()) == 7
    site.write(TEXTS)
    site.run("score", code=1)
    assert site.json("retire", "--apply", "now")["applied"]["demoted"] == ["toc"]
    assert site.json("foldback", "run", "--apply", "now")["applied"] is None


# -- retire, restore


@pytest.fixture
def judged(site):
    site.synced()
    site.run("score", code=1)
    return site


def test_a_dry_retirement_writes_only_its_run_and_another_digest_is_refused(judged):
    before = judged.rows(care_runs)
    printed = judged.run("retire", code=1)
    assert "1 to hide, 0 to remove, 0 held" in printed
    assert "gated: no_statement" in printed
    found = judged.json("retire", code=1)
    assert [one["chunk"] for one in found["demote"]] == ["toc"]
    assert f"not the plan '{OTHER}'" in judged.run("retire", "--apply", OTHER, code=2)
    assert found["digest"][:12] in judged.run("retire", "--apply", code=2)
    assert judged.rows(care_runs) == before


def test_what_was_retired_is_listed_and_restored(judged):
    assert "No retirement" in judged.run("restore")
    done = judged.follow(judged.run("retire", "--by", "rita", code=1))
    assert "1 hidden, 0 removed" in done
    [run] = judged.json("restore")
    assert (run["actor"], run["hidden"], run["standing"]) == ("rita", 1, 1)
    assert run["run"] in judged.run("restore")
    before = judged.rows()
    printed = judged.run("restore", run["run"], code=1)
    assert "toc" in printed
    assert judged.json("restore", run["run"], code=1)["chunks"][0]["chunk"] == "toc"
    assert judged.rows() == before
    back = judged.follow(done)  # its last line takes it back
    assert "Back, and looked up in the index: 1" in back
    assert "All of it is back" in judged.run("restore", run["run"])
    assert "no run and no action 'x'" in judged.run("restore", "x", code=2)
    assert printed.splitlines()[-1] == (
        f"langchain-feedback index restore {run['run']} --index {INDEX} --apply"
    )


def test_a_chunk_that_is_hidden_stays_and_one_that_is_retired_is_not_written_back(judged):
    done = judged.json("retire", "--apply", judged.json("retire", code=1)["digest"])
    assert done["applied"]["demoted"] == ["toc"]
    [hidden] = judged.json("retire")["hidden"]
    assert (hidden["chunk"], hidden["source"]) == ("toc", "a.md")
    assert f"the first of them until {hidden['until'][:10]}" in judged.run("retire")
    assert "agree" in judged.run("sync")
    judged.run("sync", "--drop-junk")  # it is a retirement's to remove it
    assert "toc" in judged.held()
    with judged.store() as store, writing(store) as (connection, _):
        earlier = care_actions.c.at
        [at] = connection.scalars(update(care_actions).values(at=earlier).returning(earlier))
        connection.execute(update(care_actions).values(at=at - timedelta(days=15)))
    removed = judged.json("retire", "--apply", judged.json("retire", code=1)["digest"])
    assert removed["applied"]["removed"] == ["toc"]
    assert "toc" not in judged.held()
    found = judged.json("sync")
    assert (found["stay_out"], found["index"]["add"]) == (["toc"], [])
    assert "took them out: 1" in judged.run("sync")
    judged.run("restore", removed["applied"]["run_id"], "--apply")
    assert "toc" in judged.held()
    assert judged.json("sync")["stay_out"] == []


# -- what happens around it


def test_a_reader_that_goes_away_stops_nothing(site):
    digest = digest_of(site.run("sync", code=1))
    command = [sys.executable, "-c", "from langchain_feedback.cli.main import run; run()"]
    for last in (["--apply", digest], ["--json"]):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [*command, "index", "sync", "--index", INDEX, *last],
            stdout=write, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        os.close(write)
        assert (done.returncode, done.stderr) == (0, "")
    site.run("verify")
    assert len(site.held()) == 7


def test_on_postgresql_it_is_the_same_and_no_password_is_printed(
    postgres_url, tmp_path, monkeypatch, site
):
    del site  # for its folder and its modules
    url = make_url(postgres_url)
    on_server = Site(tmp_path, postgres_url)
    with_password = url.set(password=SECRET).render_as_string(hide_password=False)
    printed = on_server.run("sync", "--database", with_password, code=1)
    assert SECRET not in printed
    assert "with the password in the place of ***" in " ".join(printed.split())
    monkeypatch.setenv("LANGCHAIN_FEEDBACK_DATABASE", postgres_url)
    done = on_server.json("sync", "--apply", digest_of(printed))
    assert done["applied"]["written"] == 7
    assert json.loads(on_server.run("sync", "--json"))["catalog"]["unchanged"] == 7
