"""`ask` on real documents that nobody wrote for it: manuals that installed packages carry.

Each question shares less than half of its content words with the sentence that
answers it. No model is asked, so an answer is a passage picked by its words; which
questions are answered is told as it is.
"""

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from langchain_feedback.cli.commands import app
from langchain_feedback.words import content_words

MANUALS = {
    "sandbox.md": ("langsmith", "sandbox/README.md"),
    "websocket.md": ("openai", "lib/responses_websocket/README.md"),
    "live.md": ("openai", "lib/live/README.md"),
    "typer.md": ("typer", ".agents/skills/typer/SKILL.md"),
    "floats.md": (
        "opentelemetry.sdk",
        "metrics/_internal/exponential_histogram/mapping/ieee_754.md",
    ),
    "dialects.txt": ("sqlalchemy", "dialects/type_migration_guidelines.txt"),
    "masked-arrays.txt": ("numpy", "ma/API_CHANGES.txt"),
    "notices.txt": ("debugpy", "ThirdPartyNotices.txt"),
}


class Asked(NamedTuple):
    question: str
    file: str
    sentence: str
    """The words of the document that answer it."""
    answered: bool
    """Whether the words alone find them."""


DATA = Path(__file__).parents[2] / "data" / "manual_questions.jsonl"
QUESTIONS = [Asked(**json.loads(line)) for line in DATA.read_text().splitlines()]
UNRELATED = [
    "What is the capital of Mongolia?",
    "How do I bake sourdough bread?",
    "When does the museum open on Sundays?",
    "Which vitamins do oranges contain?",
]


@pytest.fixture(scope="module")
def manuals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manuals")
    for name, (package, path) in MANUALS.items():
        home = Path(find_spec(package).submodule_search_locations[0])
        shutil.copy(home / path, folder / name)
    return folder


def ask(question, folder):
    result = CliRunner().invoke(app, ["ask", question, "--docs", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def folded(text):
    return " ".join(re.findall(r"\w+", text.casefold()))


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked.question)
def test_the_questions_are_in_other_words_than_the_documents(asked, manuals):
    assert folded(asked.sentence) in folded((manuals / asked.file).read_text())
    words, sentence = set(content_words(asked.question)), set(content_words(asked.sentence))
    assert len(words & sentence) < len(words) / 2


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked.question)
def test_answers_are_right_and_quoted(asked, manuals):
    data = ask(asked.question, manuals)
    right = folded(asked.sentence) in folded(data["answer"])
    assert right is asked.answered
    if right:
        quotes = " ".join(citation["quote"] for citation in data["citations"])
        assert folded(asked.sentence) in folded(quotes)
        assert all(citation["verified"] for citation in data["citations"])
        assert asked.file in {citation["source"].split(" > ")[0] for citation in data["citations"]}


def test_enough_of_them_are_answered():
    assert sum(asked.answered for asked in QUESTIONS) >= 5


@pytest.mark.parametrize("question", UNRELATED)
def test_unrelated_questions_are_not_answered(question, manuals):
    data = ask(question, manuals)
    assert data["status"] == "abstained"
    assert data["reason"] in {"no_documents", "none_relevant"}
    assert data["citations"] == []
