"""The documentation is true: its code runs and prints what it says, its links lead somewhere.

Each Python block of a page runs by itself; one under `<!-- continues -->` goes on where the block
before it ended. A comment behind a `print(...)` on one line is what it prints, `...` being
anything. A block under `<!-- NAME: WHAT -->` needs more than a test has; another test runs it as
far as it can. The generator checks links once more, with those into the API (`make docs`).
"""

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from langchain_core.documents import Document
from typer.testing import CliRunner

from langchain_feedback.cli.commands import app
from langchain_feedback.index.gate import QualityGate
from langchain_feedback.index.jobs import score_corpus

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_BLOCK = re.compile(
    r"(?P<continues><!-- continues -->\n)?^```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
_MARKED = re.compile(
    r"^<!-- (?P<name>[a-z]+: [a-z]+) -->\n```py\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
TRIED_ELSEWHERE = {
    "warehouse: example",  # test_warehouse.py
    "ray: recipe",  # below, but for Ray itself
    "ray: load",
}
_SAID = re.compile(r"^\s*print\(.*\)  # (?P<said>.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


class Run(NamedTuple):
    """Blocks of a page that run one after the other in one namespace."""

    name: str
    blocks: list[str]


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS))


def runs() -> list[Run]:
    found: list[Run] = []
    for page in PAGES:
        for number, match in enumerate(_BLOCK.finditer(page.read_text()), 1):
            if match["continues"]:
                found[-1].blocks.append(match["code"])
            else:
                found.append(Run(f"{name_of(page)} block {number}", [match["code"]]))
    return found


def marked(page: Path) -> dict[str, str]:
    """Return the blocks of a page that other tests run, by name."""
    return {match["name"]: match["code"] for match in _MARKED.finditer(page.read_text())}


def pattern(said: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, said.split("..."))), re.DOTALL)


@pytest.mark.parametrize("run", runs(), ids=lambda run: run.name)
def test_each_example_runs_and_prints_what_it_says(run, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    # No LangSmith that happens to be configured where the tests run.
    for name in ("LANGSMITH_API_KEY", "LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.delenv(name, raising=False)
    scope: dict[str, object] = {}
    for block in run.blocks:
        exec(compile(block, run.name, "exec"), scope)  # noqa: S102  our own documentation
        printed = capsys.readouterr().out
        for said in _SAID.findall(block):
            assert re.search(rf"^{pattern(said).pattern}$", printed, re.MULTILINE), (said, printed)


def test_a_comment_behind_a_print_that_is_untrue_would_be_found(capsys, monkeypatch, tmp_path):
    with pytest.raises(AssertionError):
        test_each_example_runs_and_prints_what_it_says(
            Run("untrue", ["print(1 + 1)  # 3\n"]), capsys, monkeypatch, tmp_path
        )


def test_every_python_block_is_one_that_runs():
    """A fence that is indented, or of another spelling, would pass unseen."""
    fences = sum(len(re.findall(r"```\s*(?:python|py)\b", page.read_text())) for page in PAGES)
    elsewhere = [name for page in PAGES for name in marked(page)]
    assert sorted(elsewhere) == sorted(TRIED_ELSEWHERE)
    assert fences - len(elsewhere) == sum(len(run.blocks) for run in runs()) > 15


def test_what_workers_of_a_cluster_score_is_known_to_the_store(monkeypatch, tmp_path):
    """The recipe for Ray Data, each row as a worker makes it; what Ray does is not tried here."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    page = marked(DOCS / "scaling.md")
    scope: dict[str, Any] = {"__name__": "worker"}
    exec(compile(page["ray: recipe"], "ray: recipe", "exec"), scope)  # noqa: S102  our own
    corpus = [Document("Refunds take 14 days."), Document("Contents"), Document("\ud800 odd")]
    rows = scope["scored"]({"text": [chunk.page_content for chunk in corpus]})
    Path("scores").mkdir()
    parquet.write_table(arrow.table(rows), "scores/0.parquet")
    loading: dict[str, Any] = {}
    exec(compile(page["ray: load"], "ray: load", "exec"), loading)  # noqa: S102
    assert score_corpus(loading["store"], corpus).scored == 0
    assert [reasons for _, reasons in QualityGate(loading["store"]).split(corpus)[1]] == [
        ["no_statement"],
        ["no_statement"],
    ]
    loading["store"].close()


def test_the_app_of_index_care_is_taken_by_the_commands_that_stand_below_it(monkeypatch, tmp_path):
    """From nothing to a clean bill of health, and the two lines of the crontab."""
    page = (DOCS / "index-care.md").read_text()
    code = next(match["code"] for match in _BLOCK.finditer(page) if "my_app.py" in match["code"])
    (tmp_path / "my_app.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("LANGCHAIN_FEEDBACK_DATABASE", raising=False)
    run, printed, codes = CliRunner(), "", []
    by_hand = re.findall(r"^langchain-feedback (index [^#\n]+)", page, re.MULTILINE)
    cron = re.findall(r"bin/langchain-feedback (index .+)$", page, re.MULTILINE)
    for line in [*by_hand, *cron]:
        if line == cron[0]:  # what the page says of it
            table = '[tool.langchain-feedback]\nindex = "my_app:index"\n'
            (tmp_path / "pyproject.toml").write_text(table)
        digest = re.search(r"--apply ([0-9a-f]{12})$", printed.strip())
        words = line.replace("3f0a9c81d2e4", digest[1] if digest else "").split()
        result = run.invoke(app, words, catch_exceptions=False)
        printed = result.output
        codes.append(result.exit_code)
    sys.modules.pop("my_app").store.close()
    assert len(by_hand) == 5
    assert codes == [0, 1, 0, 1, 0, 0, 0], printed


def test_what_a_print_says_stands_on_its_line():
    """A formatter that breaks a long call leaves its comment where nobody compares it."""
    for page in PAGES:
        assert not re.search(r"^\s*\)  # ", page.read_text(), re.MULTILINE), page


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[ \-]+", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_pages_and_headings_that_exist(page):
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", _FENCED.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.is_file(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_page_is_in_the_navigation_once():
    def pages(entry) -> list[str]:
        if isinstance(entry, dict):
            entry = list(entry.values())
        if isinstance(entry, list):
            return [page for part in entry for page in pages(part)]
        return [entry]

    config = tomllib.loads((ROOT / "zensical.toml").read_text())
    assert sorted(pages(config["project"]["nav"])) == [name_of(page) for page in PAGES]


def test_named_commands_benchmarks_tests_and_notebooks_exist():
    text = "\n".join(page.read_text() for page in PAGES)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE)) <= targets
    for script in re.findall(r"benchmarks/\w+\.py", text):
        assert (ROOT / script).is_file(), script
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"`(test_\w+\.py)`", text)) <= tests
    cookbook = (DOCS / "cookbook.md").read_text()
    notebooks = {path.stem for path in (ROOT / "cookbook").glob("*.ipynb")}
    assert set(re.findall(r"`(\d\d_\w+)`", cookbook)) == notebooks


def test_every_public_name_has_its_place_in_the_reference():
    import langchain_feedback  # noqa: PLC0415
    from langchain_feedback import nodes  # noqa: PLC0415

    reference = "\n".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    named = set(re.findall(r"^::: ([\w.]+)$", reference, re.MULTILINE))
    for module in (langchain_feedback, nodes):
        for name in set(module.__all__) - {"nodes"}:
            home = getattr(module, name).__module__
            assert {home, f"{home}.{name}"} & named, f"{home}.{name} is not in docs/api"
