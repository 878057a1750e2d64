"""A store that a week of the loop has work with, and its tables as they stand."""

import json
import shutil
from pathlib import Path

from langchain_core.runnables import RunnableLambda
from sqlalchemy import inspect, select

from langchain_feedback import FeedbackStore
from langchain_feedback.loop.cases import import_cases
from langchain_feedback.store.columns import metadata
from langchain_feedback.store.learning_schema import loop_runs
from langchain_feedback.store.transactions import reading
from tests.unit_tests.loop.kit import asked, said
from tests.unit_tests.loop.learned import pool_of, reviewed

__all__ = ["GIFT", "copied", "fill", "tables"]

GIFT = "Is there a <b>gift card</b>? Ask @octocat | see #12"


def fill(store, *, questions=60, ordinary=15, cases=100):
    """Questions that reviewers decided, ordinary ones with a click, and one without documents.

    Cases of one's own are frozen, too, as many as a promotion needs.
    """
    for number in range(questions):
        reviewed(store, number)
    for number in range(1000, 1000 + ordinary):
        pool = pool_of(number, right=2)
        question = f"Where is the answer to topic alpha{number}?"
        trace_id = asked(store, question, pool, actor=f"p{number}", answer="An answer.")
        said(store, trace_id, "source_click", target=pool[2])
    store.record_trace("none", GIFT, [], actor="eve")
    store.update_trace("none", status="abstained", reason="no_documents")
    pools = {
        f"Which is the answer to topic alpha{number}?": pool_of(number, right=2)
        for number in range(5000, 5000 + cases)
    }
    rows = [{"question": one, "relevant": [pool[2].id]} for one, pool in pools.items()]
    import_cases(store, rows, RunnableLambda(pools.__getitem__))


def copied(template: Path, folder: Path) -> str:
    """Return the URL of a copy of a database that is closed."""
    path = folder / "feedback.db"
    shutil.copy(template, path)
    return f"sqlite:///{path}"


def tables(store: FeedbackStore) -> dict[str, list[str]]:
    """All rows of all tables but those of runs, and the place that `derive` noted."""
    found = {}
    with reading(store) as connection:
        there = set(inspect(connection).get_table_names())
        for table in metadata.sorted_tables:
            if table is loop_runs or table.name not in there:
                continue
            rows = connection.execute(select(table)).mappings()
            lines = sorted(json.dumps(dict(row), default=str, sort_keys=True) for row in rows)
            found[table.name] = [line for line in lines if "bookmark:default:derived" not in line]
    return found
