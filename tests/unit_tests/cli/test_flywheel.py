"""`langchain-feedback demo --flywheel`, as people and programs see it."""

import json
import re
import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from langchain_feedback.cli.commands import app
from langchain_feedback.cli.flywheel import show_run
from langchain_feedback.demo.flywheel import run_flywheel
from langchain_feedback.demo.flywheel_records import FlywheelRun, FlywheelSettings

runner = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"})
FIELDS = {
    "mean_recall_before",
    "mean_recall_after",
    "recall_by_question",
    "wrong_answers",
    "wrong_by_question",
    "last_order_change_event",
    "last_score_change_event",
    "scores",
}


def lab(*arguments):
    return runner.invoke(app, ["demo", "--flywheel", *map(str, arguments)])


def lab_json(*arguments):
    result = lab("--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_json_has_the_documented_fields_and_the_settings():
    data = lab_json("--signal", "clicks", "--policy", "average", "--events", 15)
    assert data.keys() >= FIELDS
    settings = {name: data[name] for name in ("signal", "policy", "reviewer", "events")}
    assert settings == {"signal": "clicks", "policy": "average", "reviewer": False, "events": 15}
    assert len(data["questions"]) == len(data["wrong_by_question"]) == 5
    assert data["wrong_by_question"] == [0, 3, 3, 1, 0]
    assert data["last_order_change_event"] == 15
    assert data["scores"]["sizing@cancel"] == 0.333


def test_told_nothing_it_runs_the_defaults_on_a_hundred_events():
    data = lab_json()
    assert (data["signal"], data["policy"], data["events"]) == ("cited", "default", 100)
    assert data["scores"]["sizing@cancel"] == 1
    assert (data["mean_recall_after"], data["wrong_answers"]) == (0.7, 41)


def test_a_reviewer_closes_the_gap():
    data = lab_json("--reviewer")
    assert (data["mean_recall_before"], data["mean_recall_after"]) == (0.5, 1.0)
    assert data["wrong_answers"] <= 6


def test_people_see_a_table_bars_and_one_line_that_says_what_it_shows():
    output = lab("--reviewer", "--events", 25).stdout
    lines = [" ".join(line.strip("│ ").split()) for line in output.splitlines()]
    assert "How long does a refund take? 0.50 1.00 5 3" in lines
    assert "1-10 █████ 5 of 10" in lines
    assert "11-20 █ 1 of 10" in lines
    assert "21-25 0 of 5" in lines
    assert "Mean recall@2 went from 0.50 to 1.00; 6 of 25 answers were wrong." in lines
    assert any("pinned 3 chunks" in line for line in lines)


def test_without_a_reviewer_people_are_told_what_no_order_reaches():
    output = " ".join(lab("--events", 8).stdout.replace("│", " ").split())
    assert "from 0.50 to 0.70; 5 of 8 answers were wrong." in output
    assert "4 of these are out of reach of any order" in output
    assert "refund-timing, incidents, sla" in output
    assert "--reviewer" in output


def test_no_events_change_nothing():
    output = lab("--events", 0).stdout
    assert "Mean recall@2 stayed at 0.50; 0 of 0 answers were wrong." in output


def test_many_events_stay_few_bars():
    moments = run_flywheel(FlywheelSettings(events=2)).moments
    long = FlywheelRun(FlywheelSettings(events=205), (*moments, *moments[-1:] * 203))
    console = Console(width=80, file=StringIO())
    show_run(console, long)
    bars = re.findall(r"(\d+-\d+) +(█*) +(\d+ of \d+)", console.file.getvalue())
    assert bars[0] == ("1-20", "█", "1 of 20")
    assert bars[-1] == ("201-205", "", "0 of 5")
    assert len(bars) == 11


def test_the_lines_fit_a_narrow_terminal():
    result = CliRunner(env={"COLUMNS": "60", "NO_COLOR": "1"}).invoke(
        app, ["demo", "--flywheel", "--events", "10"]
    )
    assert max(map(len, result.stdout.splitlines())) <= 60


def test_a_picture_and_a_database_are_kept_where_they_were_asked_for(tmp_path):
    plot, database = tmp_path / "lab.png", tmp_path / "lab.db"
    result = lab("--events", 5, "--plot", plot, "--database", database)
    assert result.exit_code == 0, result.output
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert database.read_bytes().startswith(b"SQLite format 3")
    assert "lab.png" in result.stdout.replace("\n", "")
    assert "lab.db" in result.stdout.replace("\n", "")


def test_json_with_a_picture_is_still_json(tmp_path):
    assert lab_json("--events", 5, "--plot", tmp_path / "lab.svg")["events"] == 5
    assert "<svg" in (tmp_path / "lab.svg").read_text()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--reviewer"], "--reviewer"),
        (["--events", "5"], "--events"),
        (["--signal", "thumbs", "--policy", "average"], "--signal, --policy"),
        (["--plot", "lab.png"], "--plot"),
        (["--database", "lab.db"], "--database"),
    ],
)
def test_options_of_the_lab_need_it(options, says):
    result = runner.invoke(app, ["demo", *options])
    assert result.exit_code == 2
    assert "--flywheel" in result.stderr
    assert says in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--events", "-1"], "--events"),
        (["--events", "many"], "--events"),
        (["--signal", "stars"], "--signal"),
        (["--policy", "best"], "--policy"),
        (["--plot", "lab.docx"], ".png"),
        (["--plot", "nowhere/lab.png"], "no folder"),
        (["--database", "nowhere/lab.db"], "no folder"),
        (["--database", "."], "exists"),
    ],
)
def test_settings_that_cannot_be_run_are_told_before_anything_runs(
    options, says, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = lab(*options)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_picture_without_its_extra_says_what_to_install(tmp_path):
    options = ["demo", "--flywheel", "--plot", str(tmp_path / "lab.png")]
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from langchain_feedback.cli.main import run\n"
        f"sys.argv = ['langchain-feedback', *{options!r}]\n"
        "run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "langchain-feedback[plot]" in done.stderr.replace("\n", "")
    assert "Traceback" not in done.stderr


def test_the_plain_demo_points_at_it():
    last = runner.invoke(app, ["demo"]).stdout.strip().splitlines()[-1]
    assert "langchain-feedback demo --flywheel" in last
