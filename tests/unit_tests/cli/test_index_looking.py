"""`langchain-feedback index`: what only looks, and how commands find their index or fail."""

import json
import shutil
import subprocess
import sys

import pytest
from typer.main import get_command

from langchain_feedback.cli.index import app
from langchain_feedback.store.schema import chunks
from tests.unit_tests.cli.index_kit import INDEX, JUNK, MODULE, TEXTS


def commands(group, before=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))
        else:
            yield (*before, name)


@pytest.mark.parametrize("words", list(commands(get_command(app))), ids=" ".join)
def test_each_command_shows_an_example_of_itself(site, words):
    shown = " ".join(site.run(*words, "--help", index=None).split())
    assert f"Example: langchain-feedback index {' '.join(words)}" in shown


def test_score_shows_junk_with_its_reasons_and_judges_a_text_once(site):
    first = site.json("score", code=1)
    assert (first["seen"], first["scored"], first["gated"]) == (7, 7, 1)
    assert first["chunks"] == [
        {"chunk": "toc", "source": "a.md", "kind": "prose", "reasons": ["no_statement"],
         "allowed": False, "text": JUNK}
    ]  # fmt: skip
    again = site.run("score", code=1)
    assert "7 chunks, 0 texts judged now, 1 are junk" in again
    assert "no_statement   a.md     toc     Contents" in again


def test_shards_judge_every_chunk_once_and_several_processes_do_the_same(site):
    # All of a.md is in the second share, and so is the junk.
    parts = [site.json("score", "--shard", f"{n}/2", code=n == 2) for n in (1, 2)]
    assert sum(part["seen"] for part in parts) == len(TEXTS)
    assert sum(part["gated"] for part in parts) == 1
    assert "2/8" in site.run("score", "--shard", "two", code=2)
    command = [sys.executable, "-c", "from langchain_feedback.cli.main import run; run()"]
    typed = ["index", "score", "--index", INDEX, "--workers", "2", "--json"]
    done = subprocess.run([*command, *typed], capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["gated"]) == (1, 1)


def test_score_and_duplicates_take_the_catalog_where_no_loader_is_named(site):
    assert site.json("score", index=None)["seen"] == 1  # what an answer showed
    site.synced()
    assert site.json("score", index=None, code=1)["seen"] == len(TEXTS)
    assert site.json("score", "--catalog", "--limit", "1", code=1)["seen"] == len(TEXTS)
    [found] = site.json("duplicates", "--exact", index=None, code=1)["duplicates"]
    assert (found["chunk"], found["of"]) == ("fee", "copy")  # by id: they came together


def test_duplicates_are_shown_with_what_they_repeat(site):
    found = site.json("duplicates", code=1)
    assert [(one["kind"], one["chunk"], one["of"]) for one in found["duplicates"]] == [
        ("exact", "copy", "fee"), ("near", "near", "pump"),
    ]  # fmt: skip
    shown = site.run("duplicates", code=1)
    assert "7 chunks; copies: 1, near copies: 1" in shown
    assert "says what this one says: pump (c.md)" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert site.json("duplicates", "--exact", code=1)["near"] == 0


def test_suggestions_are_written_for_whoever_owns_the_splitter(site, tmp_path):
    site.synced()
    site.run("score", code=1)
    out = tmp_path / "suggestions.jsonl"
    [found] = site.json("suggest", "--out", str(out), index=None, code=1)
    assert (found["kind"], found["chunks"]) == ("merge", ["days", "toc"])
    assert json.loads(out.read_text())["chunks"] == ["days", "toc"]
    assert "--overwrite" in site.run("suggest", "--out", str(out), index=None, code=2)
    assert "days + toc" in site.run("suggest", "--overwrite", index=None, code=1)


def test_verify_finds_what_is_gone_and_sync_puts_it_back(site):
    site.synced()
    assert "7 chunks are in the index as the ledger says" in site.run("verify")
    shutil.rmtree(site.folder / "faiss")
    found = site.json("verify", code=1)
    assert (found["ok"], found["figures"]["missing"]) == (False, 7)
    assert "index sync" in site.run("verify", code=1)
    site.synced()
    assert site.json("verify")["ok"]


def test_health_looks_without_changing_anything(site):
    site.synced()
    site.run("score", code=1)
    before = site.rows()
    found = site.json("health")
    assert {check["name"] for check in found["checks"]} >= {"ledger", "gated_share"}
    assert "clean ledger" in site.run("health")
    assert site.rows() == before
    shutil.rmtree(site.folder / "faiss")
    assert "ALARM ledger" in site.run("health", code=1)


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (None, ["--index module:factory", "pyproject.toml"]),
        ("nonsense", ["--index is module:factory"]),
        ("no_such_module:index", ["No module named 'no_such_module'", "none is installed"]),
        (f"{MODULE}:nothing", ["no attribute 'nothing'"]),
        (f"{MODULE}:not_an_index", ["makes a FAISS, and a ManagedIndex is needed"]),
        (f"{MODULE}:broken", ["RuntimeError: no such folder", f"{MODULE}.py, line"]),
        (f"{MODULE}:unreadable", ["ZeroDivisionError", f"{MODULE}.py, line"]),
        (f"{MODULE}:empty", ["returned no documents at all"]),
        (f"{MODULE}:not_a_list", ["is to return documents, and returned None"]),
        (f"{MODULE}:of_strings", ["one of them is 'a text'"]),
        (f"{MODULE}:without_loader", ["ManagedIndex(documents=...)"]),
        ("broken_module:index", ["No module named 'a_package_nobody_has'", "line 1"]),
        ("wrong_module:index", ["SyntaxError"]),
    ],
)
def test_what_is_wrong_with_an_index_is_told_in_one_line(site, index, words):
    (site.folder / "broken_module.py").write_text("import a_package_nobody_has\n")
    (site.folder / "wrong_module.py").write_text("def index(:\n")
    [line] = site.run("sync", index=index, code=2).splitlines()
    for word in words:
        assert word in line


def test_a_missing_store_or_extra_is_told_in_one_line(site, monkeypatch):
    [line] = site.run("verify", "--database", "none.db", code=2).splitlines()
    assert "--database" in line
    monkeypatch.setitem(sys.modules, "duckdb", None)
    site.run("export", "warehouse", index=None)
    [line] = site.run(
        "rebuild", "warehouse", "--out", "e.parquet", index=None, code=2
    ).splitlines()
    assert 'pip install "langchain-feedback[warehouse]"' in line


def test_the_index_is_looked_up_in_the_nearest_pyproject_that_names_one(site, monkeypatch):
    project = site.folder / "pyproject.toml"
    project.write_text(f'[tool.langchain-feedback]\nindex = "{INDEX}"\n')
    inner = site.folder / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text("[project]\nname = 'inner'\n")
    monkeypatch.chdir(inner)
    monkeypatch.setenv("LANGCHAIN_FEEDBACK_DATABASE", str(site.folder / "feedback.db"))
    printed = site.run("sync", index=None, code=1)
    assert "--index" not in printed  # it was not given
    assert "no attribute 'other'" in site.run("sync", index=f"{MODULE}:other", code=2)
    project.write_text("[tool.langchain-feedback]\nindex = 3\n")
    assert 'index = "module:factory"; got 3' in site.run("sync", index=None, code=2)
    project.write_text("[tool\n")
    assert str(project) in site.run("sync", index=None, code=2)


def test_an_export_is_counted_and_evidence_is_rebuilt_from_it(site):
    from pyarrow import parquet  # noqa: PLC0415

    with site.store() as store:
        store.rate("t1", 5, target="fee", actor="ann")
    assert site.json("export", "warehouse", index=None)["signals"] == 1
    assert "0 of them written now" in site.run("export", "warehouse", index=None)
    assert "holds other files, such as" in site.run("export", ".", index=None, code=2)
    assert not (site.folder / "manifest.json").exists()
    done = site.json("rebuild", "warehouse", "--out", "evidence.parquet", index=None)
    table = parquet.read_table("evidence.parquet")
    assert (done["rows"], table.column("positive").to_pylist()) == (1, [1.0])
    assert "index export none`" in site.run("rebuild", "none", "--out", "x", index=None, code=2)
    inside = ("rebuild", "warehouse", "--out", "warehouse/evidence.parquet")
    assert "lies in the export" in site.run(*inside, index=None, code=2)
    assert not (site.folder / "warehouse" / "evidence.parquet").exists()


def test_what_only_looks_leaves_the_catalog_alone(site):
    before = site.rows()
    site.run("duplicates", code=1)
    site.run("verify", code=1)
    site.run("suggest", index=None)
    site.run("foldback", "list")
    site.run("versions", "list", index=None)
    assert site.rows() == before
    assert chunks.name in before
