"""The week of the loop in the real `langgraph dev` server: by a cron, and by hand."""

import time
from pathlib import Path

import pytest
from langgraph_sdk import get_sync_client
from sqlalchemy import text

from langchain_feedback import FeedbackStore
from langchain_feedback.loop.job import STEPS, last_runs, run_loop
from langchain_feedback.loop.promotion import active_ranker
from langchain_feedback.store.transactions import writing
from tests.langgraph_dev_server import langgraph_dev
from tests.unit_tests.loop.job_kit import fill

CONFIG = Path(__file__).parents[2] / "langgraph.json"

pytest.importorskip("langgraph_api", reason="langgraph-cli[inmem] is not installed")


def waited_for_run(store, seconds=150):
    """Wait until somebody's run is over: a cron fires at the full minute."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := [run for run in last_runs(store) if run.finished_at is not None]:
            return found[0]
        time.sleep(0.5)
    msg = f"No run within {seconds} s"
    raise AssertionError(msg)


def test_a_cron_runs_the_week_and_nobody_over_http_promotes_check8(tmp_path):
    url = f"sqlite:///{tmp_path / 'feedback.db'}"
    with FeedbackStore(url) as store:
        fill(store)
        with langgraph_dev(CONFIG, {"LANGCHAIN_FEEDBACK_DATABASE": url}) as server:
            client = get_sync_client(url=server)
            cron = client.crons.create("weekly_loop", schedule="* * * * *", input={})
            run = waited_for_run(store)
            client.crons.delete(cron["cron_id"])
            assert (run.state, [step.name for step in run.steps]) == ("done", list(STEPS))
            assert run.step("promote").facts["waits"]
            asked = {"auto_promote": True, "steps": ["promote"]}
            again = client.runs.wait(None, "weekly_loop", input=asked)
            assert again["state"] == "done"
            assert [step["name"] for step in again["steps"]] == ["promote"]
            assert "A person decides" in again["report"]
            assert active_ranker(store) is None


def test_a_second_scheduler_is_told_and_a_failed_step_fails_the_run_check8(tmp_path):
    url = f"sqlite:///{tmp_path / 'feedback.db'}"
    environment = {
        "LANGCHAIN_FEEDBACK_DATABASE": url,
        "LANGCHAIN_FEEDBACK_OWNERS": str(tmp_path / "owners.toml"),
    }
    (tmp_path / "owners.toml").write_text('[default]\nname = "docs"\n')
    with (
        FeedbackStore(url) as store,
        langgraph_dev(CONFIG, environment) as server,
        get_sync_client(url=server) as client,
    ):
        while_it_runs = []

        def ask(step):
            while_it_runs.append(client.runs.wait(None, "weekly_loop", input={}))

        run_loop(store, steps=["derive"], on_step=ask)
        assert while_it_runs[0]["state"] == "busy"
        assert "is running in another process" in while_it_runs[0]["report"]
        with pytest.raises(Exception, match="no step 'dance'"):
            client.runs.wait(None, "weekly_loop", input={"steps": ["dance"]})
        with writing(store) as (connection, _):
            connection.execute(text("DROP TABLE lcf_eval_cases"))
        with pytest.raises(Exception, match=r"freeze: .*lcf_eval_cases"):
            client.runs.wait(None, "weekly_loop", input={})
        failed = last_runs(store)[0]
        assert (failed.state, failed.step("digest").state) == ("failed", "done")
