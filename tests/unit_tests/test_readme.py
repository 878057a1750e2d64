"""The README is true: its examples run, its picture is the graph's, its proofs exist."""

import re
from pathlib import Path

import pytest
from langchain_core.runnables import RunnableLambda

from langchain_feedback import create_reliable_rag
from tests.fakes import FakeChatModel, replies

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_examples_run_as_printed(capsys):
    for number, block in enumerate(blocks("python"), 1):
        exec(compile(block, f"README block {number}", "exec"), {})  # noqa: S102
    printed = capsys.readouterr().out
    assert "answered A refund takes 14 days. A refund takes 14 days." in printed
    assert "none_relevant" in printed
    assert "['team', 'card', 'days']\n['days', 'team', 'card']\nMoved up from 3 to 1" in printed
    assert "'grade_documents': {'context': [Document(" in printed
    assert "Keys rotate" not in printed.split("'grade_documents'")[1]
    assert "'check_groundedness': {'grounded': True" in printed
    assert "[['navigation']]\nfaq: 1 to add, 0 to replace" in printed
    assert "A refund takes 14 days. answered 1 A refund takes 14 days." in printed


def test_the_picture_is_drawn_by_langgraph():
    model = FakeChatModel(reply=replies())
    graph = create_reliable_rag(RunnableLambda(lambda question: []), model)
    drawn = graph.get_graph().draw_mermaid()
    assert blocks("mermaid") == [drawn], f"Put this into the README:\n{drawn}"


def test_every_named_make_target_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE)) <= targets


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", README))))
def test_every_proof_that_is_named_exists(name):
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    assert any(f"def {name}(" in source for source in sources)


def test_every_linked_file_exists():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
