import json
import subprocess
import sys
from pathlib import Path

import pytest
from pypdf import PdfWriter
from typer.testing import CliRunner

from langchain_feedback.cli.commands import app
from langchain_feedback.judges import prompts
from tests.fakes import claims
from tests.openai_server import Failure, Json, OpenAIServer, Text

runner = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"})
REFUNDS = "Plans are monthly.\n\nA refund is paid within 14 days of the request, to the same card."
QUESTION = "How fast is a refund paid?"


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "refunds.md").write_text(f"# Money\n\n## Refunds\n\n{REFUNDS}\n")
    (folder / "keys.txt").write_text("Access keys rotate every ninety days.\n")
    return folder


@pytest.fixture(autouse=True)
def _no_key(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)


def ask(*arguments, **options):
    return runner.invoke(app, ["ask", *map(str, arguments)], **options)


def test_ask_prints_the_answer_its_source_and_the_quoted_words(docs):
    result = ask(QUESTION, "--docs", docs)
    assert result.exit_code == 0, result.output
    assert "within 14 days of the request" in " ".join(result.stdout.split())
    assert "refunds.md > Money > Refunds" in result.stdout


def test_ask_json_has_the_documented_shape_and_offsets_that_hold(docs):
    result = ask(QUESTION, "--docs", docs, "--json")
    data = json.loads(result.stdout)
    assert set(data) == {
        "status",
        "answer",
        "reason",
        "citations",
        "documents",
        "trace_id",
        "model_calls",
    }
    assert (data["status"], data["model_calls"]) == ("answered", 0)
    [citation] = data["citations"]
    assert set(citation) == {"quote", "source", "start", "end", "verified"}
    assert citation["verified"] is True
    assert citation["end"] - citation["start"] == len(citation["quote"])
    assert "14 days" in citation["quote"]
    assert all(set(item) == {"id", "source", "grade"} for item in data["documents"])
    assert data["documents"][0]["grade"] == "yes"
    assert len(data["trace_id"]) == 36


def test_ask_abstains_and_says_why(docs):
    result = ask("Who won the world cup in 1998?", "--docs", docs, "--json")
    data = json.loads(result.stdout)
    assert (result.exit_code, data["status"]) == (0, "abstained")
    assert data["reason"] in {"no_documents", "none_relevant"}
    assert data["citations"] == []


def test_k_says_how_many_chunks_are_looked_at(docs):
    for number in range(6):
        (docs / f"more{number}.txt").write_text(f"A refund is paid, part {number}.")
    for k in (1, 3):
        data = json.loads(ask(QUESTION, "--docs", docs, "--k", k, "--json").stdout)
        assert len(data["documents"]) == k


def test_what_documents_say_is_never_markup_and_never_steers_the_terminal(docs):
    (docs / "evil.txt").write_text("A refund is paid [red]never[/red] \x1b[31mby card\x1b[0m.")
    (docs / "refunds.md").unlink()
    result = ask(QUESTION, "--docs", docs)
    assert "[red]never[/red]" in result.stdout
    assert "\x1b[31mby" not in result.stdout


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: None, "docs"),
        (lambda folder: (folder / "image.png").write_bytes(b"\x89PNG"), ".pdf"),
        (lambda folder: (folder / "blank.txt").write_text(" \n "), "blank"),
        (lambda folder: (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nonsense"), "broken.pdf"),
        (lambda folder: (folder / "binary.txt").write_bytes(bytes(range(256)) * 4), "binary.txt"),
    ],
)
def test_a_folder_that_cannot_be_answered_from_is_told_in_words(tmp_path, make, says):
    folder = tmp_path / "docs"
    folder.mkdir()
    make(folder)
    result = ask(QUESTION, "--docs", folder)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert says in result.stderr.replace("\n", "")


def test_a_scanned_pdf_is_told_to_need_ocr(tmp_path):
    writer = PdfWriter()
    writer.add_blank_page(width=100, height=100)
    writer.write(tmp_path / "scan.pdf")
    result = ask(QUESTION, "--docs", tmp_path)
    assert result.exit_code == 2
    assert "scan.pdf" in result.stderr
    assert "OCR" in result.stderr


def test_a_missing_folder_is_told(tmp_path):
    result = ask(QUESTION, "--docs", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "nowhere" in result.stderr.replace("\n", "")


def test_one_bad_file_stops_it_and_skip_errors_goes_on(docs):
    (docs / "broken.pdf").write_bytes(b"%PDF-1.4 nonsense")
    assert ask(QUESTION, "--docs", docs).exit_code == 2
    result = ask(QUESTION, "--docs", docs, "--skip-errors", "--json")
    assert result.exit_code == 0
    assert "broken.pdf" in result.stderr
    assert json.loads(result.stdout)["status"] == "answered"


@pytest.mark.parametrize(("question", "says"), [("", "no question"), ("   ", "no question")])
def test_an_empty_question_is_told(docs, question, says):
    result = ask(question, "--docs", docs)
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize("model", ["gpt-4.1-mini", "openai:", "mistral:small"])
def test_an_unknown_model_is_told(docs, model):
    result = ask(QUESTION, "--docs", docs, "--model", model)
    assert result.exit_code == 2
    assert "openai:NAME" in result.stderr


def test_a_missing_key_is_told_before_any_file_is_read(tmp_path):
    result = ask(QUESTION, "--docs", tmp_path / "nowhere", "--model", "openai:gpt-4.1-mini")
    assert result.exit_code == 2
    assert "OPENAI_API_KEY" in result.stderr


def good_model(asked):
    system, data = asked.messages[0]["content"], asked.messages[-1]["content"]
    slots = [line[5:] for line in data.splitlines() if line.startswith("Slot ")]
    if system == prompts.GRADE_DOCUMENTS:
        grades = [{"slot": slot, "reason": "", "relevant": True} for slot in slots]
        return Json({"grades": grades})
    if system == prompts.VERIFY_ANSWER:
        return Json(claims("Within 14 days.", slots[0], "within 14 days of the request"))
    return Text("Within 14 days.")


def test_with_a_model_its_answer_is_checked_and_its_calls_are_counted(docs, monkeypatch):
    with OpenAIServer(reply=good_model) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        data = json.loads(
            ask(QUESTION, "--docs", docs, "--model", "openai:some-model", "--json").stdout
        )
        assert (data["answer"], data["model_calls"]) == ("Within 14 days.", 3)
        assert data["citations"][0]["quote"] == "within 14 days of the request"
        assert len(server.chats) == 3


def test_a_bad_key_is_told(docs, monkeypatch):
    with OpenAIServer(reply=lambda asked: Failure(401, "Incorrect API key")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "wrong")
        result = ask(QUESTION, "--docs", docs, "--model", "openai:some-model")
    assert result.exit_code == 1
    assert "Incorrect API key" in result.stderr
    assert "Traceback" not in result.output


def test_demo_answers_quotes_and_abstains():
    data = json.loads(runner.invoke(app, ["demo", "--json"]).stdout)
    assert len(data) == 6
    assert {item["status"] for item in data} == {"answered", "abstained"}
    for item in data:
        assert item["model_calls"] == 0
        if item["status"] == "answered":
            assert item["citations"]
            assert all(citation["verified"] for citation in item["citations"])
            said = " ".join(item["answer"].split())
            assert all(
                " ".join(citation["quote"].split()) in said for citation in item["citations"]
            )
        else:
            assert item["citations"] == []


def test_demo_prints_what_was_kept_and_dropped():
    output = runner.invoke(app, ["demo"]).stdout
    for word in ("kept", "dropped", "abstained", "Exporting data", "0 model calls"):
        assert word in output


def test_the_installed_command_runs():
    command = str(Path(sys.executable).with_name("langchain-feedback"))
    done = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    assert "demo" in done.stdout
    assert "ask" in done.stdout
    bare = subprocess.run([command], capture_output=True, text=True, check=False)
    assert "Usage" in bare.stdout + bare.stderr


def test_without_its_extra_the_command_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['typer'] = None\n"
        "from langchain_feedback.cli.main import run\n"
        "run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert 'pip install "langchain-feedback[cli]"' in done.stderr
    assert "Traceback" not in done.stderr
