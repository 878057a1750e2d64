"""`langchain-feedback loop`: what each command prints, for people and for programs."""

import json
import sqlite3
import sys
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

from langchain_feedback import FeedbackStore, FeedbackTokens
from langchain_feedback.cli.commands import app
from langchain_feedback.loop.corrections import Corrections
from tests.unit_tests.loop.test_review import QUESTION, failing, fine

KEY = "k3y-0f-this-test-made-of-many-different-characters"


@pytest.fixture
def database(tmp_path):
    """A store with one question that goes wrong, and one that found nothing."""
    path = tmp_path / "feedback.db"
    with FeedbackStore(f"sqlite:///{path}") as store:
        fine(store)
        failing(store)
        store.record_trace("none", "Is there a gift card?", [], actor="eve")
        store.update_trace("none", status="abstained", reason="no_documents")
    return str(path)


@pytest.fixture
def loop(database, monkeypatch):
    """Run a command on that store."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments, typed=None, code=0):
        result = CliRunner().invoke(
            app, ["loop", *arguments, "--database", database], input=typed, catch_exceptions=False
        )
        assert result.exit_code == code, result.output
        return result.output if code == 0 else result.stderr

    return run


def test_worst_names_the_question_and_its_numbers(loop):
    assert "refund take?" in loop("worst")
    [found] = json.loads(loop("worst", "--json"))
    assert (found["question"], found["asks"], found["actors"]) == (QUESTION, 1, 3)


def test_sources_names_what_answers_rest_on(loop):
    assert "handbook/refund-window" in loop("sources")
    found = json.loads(loop("sources", "--json"))
    assert [one["failures"] for one in found if one["source"] == "handbook/refund-window"] == [1]


def test_mining_fills_the_queue_once_and_says_what_it_did(loop):
    first = json.loads(loop("mine", "--json"))
    assert first["derived"] == {"zero_result": 1}
    assert (first["items"]["added"], first["missing_documents"]) == (2, 1)
    again = loop("mine")
    assert "Items added to the queue: 0. Waiting: 2." in again


@pytest.mark.parametrize(("share", "says"), [("0", "1 pinned"), ("1", "another one looks too")])
def test_a_team_of_one_reviews_alone(loop, share, says):
    loop("mine", "--double", share)
    assert says in loop("review", "--reviewer", "ann", typed="1 3\nq\n")


def test_a_review_in_the_terminal_pins_corrects_and_is_taken_back(loop, database):
    loop("mine")
    printed = loop("review", "--reviewer", "ann", typed="?\n9\n1 99\n1 3 =Ten days.\nq\n")
    for words in (QUESTION, "suspect", "Begin with 1, 2 or 3", "no chunk '99'", "1 pinned"):
        assert words in printed
    with FeedbackStore(f"sqlite:///{database}") as store:
        assert len(store.evidence_for(QUESTION).pins) == 1
        assert [one.text for one in Corrections(store).items(kind="correction")] == ["Ten days."]
    assert QUESTION in loop("review", "--reviewer", "ann", "--undo")
    with FeedbackStore(f"sqlite:///{database}") as store:
        assert store.evidence_for(QUESTION).pins == ()
    told = json.loads(loop("review", "--json"))
    assert told["progress"]["open"] + told["progress"]["claimed"] == 2
    assert all("claim_token" not in item for item in told["waiting"])


def test_an_export_is_written_and_not_over_another_file(loop, tmp_path):
    loop("mine")
    loop("review", "--reviewer", "ann", typed="1 3\nq\n")
    out = tmp_path / "reviewed.jsonl"
    assert "1 rows of 1 reviewed questions" in loop("export", "--to", "jsonl", "--out", str(out))
    [row] = [json.loads(line) for line in out.read_text().splitlines()]
    assert (row["question"], row["right"], row["needs_review"]) == (
        QUESTION, ["refund-timing"], False,
    )  # fmt: skip
    assert str(out) in loop("export", "--to", "jsonl", "--out", str(out), code=2)
    assert "argilla" in loop("export", "--to", "xml", "--out", str(out), code=2)


def test_a_retest_asks_the_app_that_is_named(loop, tmp_path, monkeypatch):
    loop("mine")
    (tmp_path / "an_app_of_this_test.py").write_text(
        "def make():\n"
        "    return lambda question: {'answer': '', 'status': 'abstained', 'grounded': False,\n"
        "                             'citations': [], 'documents': [], 'grades': []}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    [found] = json.loads(loop("retest", "--app", "an_app_of_this_test:make", "--json"))
    assert (found["kind"], found["state"]) == ("missing_document", "open")
    assert found["why"]
    for wrong in ("nonsense", "no_such_module:make", "an_app_of_this_test:nothing"):
        assert "--app" in loop("retest", "--app", wrong, code=2)


def test_find_shows_what_was_said(loop):
    assert "ann says no" in " ".join(loop("find", "ann says no").split())
    [found] = json.loads(loop("find", "gift card", "--json"))
    assert found["trace_id"] == "none"
    assert "Nothing was found" in loop("find", "zebra")


def test_an_invitation_is_a_link_that_the_server_accepts(monkeypatch):
    monkeypatch.setenv("LANGCHAIN_FEEDBACK_KEYS", KEY)
    result = CliRunner().invoke(
        app, ["loop", "invite", "Ann Lee", "--url", "https://a.example/f/"]
    )
    link = urlsplit(result.output.strip())
    query = parse_qs(link.query)
    assert (link.netloc, link.path, query["reviewer"]) == ("a.example", "/f/login", ["Ann Lee"])
    tokens = FeedbackTokens([KEY])
    claims = tokens.read(query["token"][0], scope="review")
    assert tokens.matches(claims, "reviewer:Ann Lee")


def test_without_a_key_an_invitation_says_how_to_make_one(monkeypatch):
    monkeypatch.delenv("LANGCHAIN_FEEDBACK_KEYS", raising=False)
    result = CliRunner().invoke(app, ["loop", "invite", "Ann"])
    assert result.exit_code == 2
    assert "token_urlsafe" in result.stderr


def test_a_store_that_is_not_there_is_an_error_and_no_new_file(tmp_path):
    missing = tmp_path / "nothing.db"
    result = CliRunner().invoke(app, ["loop", "worst", "--database", str(missing)])
    assert result.exit_code == 2
    assert "--database" in result.stderr
    assert not missing.exists()


def test_another_programs_file_is_left_alone(tmp_path):
    path = tmp_path / "another_program.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (id INTEGER)")
    connection.close()
    result = CliRunner().invoke(
        app, ["loop", "worst", "--database", f"sqlite:///{path}?timeout=5"]
    )
    assert result.exit_code == 2
    assert "no feedback store" in result.stderr
    with sqlite3.connect(path) as connection:
        names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    assert names == [("theirs",)]


def test_owners_get_what_is_theirs(loop, tmp_path):
    owners = tmp_path / "owners.toml"
    owners.write_text('[[owners]]\nname = "Billing"\nsources = ["*refund*"]\nchannel = "outbox"\n')
    loop("mine")
    typed = "1 3 =Ten days.\nq\n"
    loop("review", "--reviewer", "ann", "--owners", str(owners), typed=typed)
    done = ("deliver", "--owners", str(owners), "--folder", str(tmp_path / "outbox"))
    assert "1 new, 1 sent" in loop(*done)
    assert "Ten days." in "".join(one.read_text() for one in (tmp_path / "outbox").iterdir())
    assert "0 new, 0 sent" in loop(*done)
    assert "owners" in loop("deliver", "--owners", str(tmp_path / "none.toml"), code=2)
