"""`langchain-feedback index`: the first steps, wrong names, and commands that can be copied."""

import shutil
import sys

import pytest
from sqlalchemy import make_url, update
from typer.testing import CliRunner

from langchain_feedback.cli.commands import app
from langchain_feedback.store.care_schema import care_actions
from langchain_feedback.store.transactions import writing
from tests.unit_tests.cli.index_kit import INDEX, MODULE, TEXTS, document

SCAN = "~^ §§ R|1e {0} °° ‰‰ ¦¦ ,;: ^^ ~~ ¬¬" * 3
SECRET = "k3y"  # noqa: S105  of a server that asks for none
AWAY = ("--database", "away.db", "--namespace", "books")


def invoked(*words):
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


# -- no store yet


def test_a_store_is_made_where_that_is_asked_and_only_there(site):
    [line] = site.run("sync", "--database", "new.db", code=2).splitlines()
    assert "There is no feedback store new.db" in line
    assert "langchain-feedback index init --database new.db" in line
    assert "LANGCHAIN_FEEDBACK_DATABASE" in line
    assert "FeedbackStore(url).setup()" in line
    assert not (site.folder / "new.db").exists()
    [same] = invoked("loop", "worst", "--database", "new.db").stderr.splitlines()
    assert same == line
    assert "new.db is a feedback store now" in site.follow(line[line.index("langchain-") :])
    site.run("sync", "--database", "new.db", code=1)
    before = (site.folder / "new.db").read_bytes()
    assert "there already" in site.run("init", "--database", "new.db", index=None)
    assert (site.folder / "new.db").read_bytes() == before
    assert site.json("init", "--database", "new.db", index=None) == {
        "database": "new.db", "made": False,
    }  # fmt: skip


def test_the_store_of_every_command_is_made_where_nobody_names_one(site):
    (site.folder / "feedback.db").unlink()
    line = site.run("health", code=2)
    assert line.strip().endswith("langchain-feedback index init")
    site.run("init", index=None)
    assert not site.rows()["lcf_traces"]
    (site.folder / "empty.db").touch()  # it is none, and nobody else's either
    site.run("sync", "--database", "empty.db", code=2)
    assert "now" in site.run("init", "--database", "empty.db", index=None)
    assert "no such folder" in site.run(
        "init", "--database", "no such folder/a.db", index=None, code=2
    )


def test_a_password_is_in_no_message_about_a_store(postgres_url, site):
    url = make_url(postgres_url).set(password=SECRET).render_as_string(hide_password=False)
    line = site.run("sync", "--database", url, code=2)
    assert SECRET not in line
    assert "holds no feedback store" in line
    assert "feedback store now" in (made := site.run("init", "--database", url, index=None))
    assert SECRET not in made
    assert "there already" in site.run("init", "--database", url, index=None)


# -- nothing is known


def test_an_index_of_which_nothing_is_known_is_a_finding(site):
    known = "index 'site' in namespace 'default'"
    assert f"nothing is known of {known}: no write, no catalog" in told(site, "health")
    assert f"Nothing was written to {known}" in told(site, "verify")
    assert site.json("verify", code=1)["ok"] is False
    site.synced()
    for command in ("health", "verify"):
        assert "'books'; other namespaces that hold chunks: 'default'" in told(
            site, command, "--namespace", "books"
        ).replace(": no write, no catalog", "")
    assert site.json("health", "--namespace", "books", code=1)["findings"] == ["known"]
    site.run("verify")


def test_another_name_of_the_index_is_a_finding(site):
    site.synced()
    named = site.folder / f"{MODULE}.py"
    named.write_text(named.read_text().replace('name="site"', 'name="sight-seeing"'))
    sys.modules.pop(MODULE)
    for command in ("health", "verify"):
        assert "to index 'sight-seeing' in namespace 'default', but to 'site' (7)" in told(
            site, command
        )


def told(site, *words, code=1):
    return " ".join(site.run(*words, code=code).split())


# -- commands that can be copied


@pytest.mark.parametrize("command", ["verify", "health"])
def test_the_next_step_has_the_options_that_were_given(site, command):
    (site.folder / "feedback.db").unlink()
    site.run("init", *AWAY[:2], index=None)
    site.follow(site.run("sync", *AWAY, code=1))
    shutil.rmtree(site.folder / "faiss")
    printed = " ".join(site.run(command, *AWAY, code=1).split())
    wanted = f"langchain-feedback index sync --database away.db --namespace books --index {INDEX}"
    assert wanted in printed
    site.follow(wanted, code=1)
    if command == "health":
        ledger = next(
            one for one in site.json(command, *AWAY, code=1)["checks"] if one["name"] == "ledger"
        )
        assert wanted in ledger["todo"]
        assert wanted in " ".join(site.run("nightly", *AWAY, code=1).split())


def scanned(*numbers):
    """Return documents of which every third one is junk."""
    texts = {f"scan{at}": (f"{at}.pdf", SCAN.format(at)) for at in numbers}
    for at in numbers:
        texts |= {
            f"rule{at}{of}": (f"{at}.pdf", f"Rule {at}{of} takes 3 days. " * 5) for of in "ab"
        }
    return texts


def retired(site, *numbers):
    code = site.folder / f"{MODULE}.py"
    of_tests = "rules=RetirementRules(most_share=0.5)"
    told = code.read_text().replace("hooks=", f"{of_tests}, hooks=")
    if site.module() is None:
        code.write_text(f"from langchain_feedback.index.retirement import RetirementRules\n{told}")
    site.write(scanned(*numbers))
    site.synced()
    site.run("score", code=1)
    site.follow(site.run("retire", code=1))


def test_runs_are_listed_and_looked_at_without_an_index_and_begin_with_a_few_letters(site):
    retired(site, 0, 1)
    [run] = site.json("restore", index=None)
    assert run["run"] in site.run("restore", index=None)
    short = run["run"][:8]
    printed = site.run("restore", short, "--limit", "1", index=None, code=1)
    assert "1 more" in printed
    assert printed.splitlines()[-1] == (
        f"langchain-feedback index restore {short} --apply --index MODULE:FACTORY"
    )
    found = site.json("restore", short, "--limit", "1", index=None, code=1)
    assert (found["run"], len(found["chunks"])) == (run["run"], 2)
    action = found["chunks"][0]["action"]
    [one] = site.json("restore", action[:8], index=None, code=1)["chunks"]
    assert one["action"] == action
    assert "--index" in site.run("restore", short, "--apply", index=None, code=2)
    assert "in the index: 2" in site.run("restore", short, "--apply")
    assert site.json("restore", short, index=None)["chunks"] == []


def test_a_list_of_runs_says_how_many_more_and_what_begins_alike_is_refused(site):
    retired(site, 0)
    retired(site, 0, 1)
    runs = site.json("restore", "--limit", "1", index=None)
    assert len(runs) == 2
    assert "1 more" in site.run("restore", "--limit", "1", index=None)
    with site.store() as store, writing(store) as (connection, _):
        first = "run-" + care_actions.c.action_id
        connection.execute(update(care_actions).values(action_id=first))
    assert "begin with 'run-': give more" in site.run("restore", "run-", index=None, code=2)
    assert "no run and no action" in site.run("restore", "none", index=None, code=2)


def test_json_is_complete_whatever_the_limit(site):
    texts = {f"toc{at}": ("a.md", "Contents") for at in range(3)}
    site.write(texts | {f"day{at}": ("b.md", TEXTS["days"][1]) for at in range(3)})
    one = ("--limit", "1")
    assert len(site.json("score", *one, code=1)["chunks"]) == 3
    assert "2 more" in site.run("score", *one, code=1)
    assert len(site.json("duplicates", *one, code=1)["duplicates"]) == 4
    assert "3 more" in site.run("duplicates", *one, code=1)
    assert len(site.json("sync", *one, code=1)["index"]["add"]) == 6


def test_entries_and_suggestions_are_complete_as_json(site):
    site.synced()
    with site.store() as store:
        for at, key in enumerate(("days", "fee")):
            trace = f"t{at + 2}"
            store.record_trace(trace, f"What is {key}?", [document(key)])
            store.update_trace(trace, answer=TEXTS[key][1], status="answered", grounded=True,
                               cited=[document(key)])  # fmt: skip
            for person in range(8):
                store.rate(trace, 5, actor=f"person {person}")
    printed = site.run("foldback", "run", "--limit", "1", code=1)
    assert "1 more" in printed
    refused = site.run("foldback", "run", "--apply", "0" * 12, code=2)
    assert refused.count("digest") == 1
    assert "plan" not in refused.partition("'000000000000'")[2]
    assert "2 to propose" in refused
    site.follow(printed)
    listed = site.json("foldback", "list", "--limit", "1")
    assert len(listed) == 2
    done = " ".join(site.run("foldback", "approve", listed[0]["derived_id"]).split())
    assert "loads it anew" in done
    assert site.asked() == {listed[0]["derived_id"]}
    assert "does not serve in any process" in " ".join(
        site.run("foldback", "reject", listed[0]["derived_id"]).split()
    )
