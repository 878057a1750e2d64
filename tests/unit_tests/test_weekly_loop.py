"""The week as a graph: what it takes over HTTP, and what it says of nonsense."""

import pytest

from graphs.weekly_loop import graph
from langchain_feedback import FeedbackStore
from langchain_feedback.errors import LangChainFeedbackError
from langchain_feedback.loop.job import last_runs


@pytest.fixture
def store(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'feedback.db'}"
    monkeypatch.setenv("LANGCHAIN_FEEDBACK_DATABASE", url)
    with FeedbackStore(url) as opened:
        opened.setup()
        yield opened


def test_a_run_takes_the_steps_that_it_is_asked_for(store):
    done = graph.invoke({"steps": ["derive"]})
    assert (done["state"], [step["name"] for step in done["steps"]]) == ("done", ["derive"])
    assert len(last_runs(store)) == 1


@pytest.mark.parametrize("steps", [5, "derive", [["derive"]], [None], {"derive": True}])
def test_steps_that_are_no_list_of_names_are_refused_in_words(store, steps):
    with pytest.raises(LangChainFeedbackError, match="steps must be a list of names"):
        graph.invoke({"steps": steps})
    assert last_runs(store) == []


def test_a_step_that_is_not_there_is_named(store):
    with pytest.raises(LangChainFeedbackError, match="no step 'dance'"):
        graph.invoke({"steps": ["dance"]})
    assert last_runs(store) == []
