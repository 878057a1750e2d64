"""The evidence that DuckDB works out from an export is the store's own, bit for bit."""

import math
import os
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import bindparam, select, update

from langchain_feedback.errors import StoreError, UnknownChunkError, UnknownTraceError
from langchain_feedback.store import schema, warehouse_files, warehouse_sums
from langchain_feedback.store.feedback_store import FeedbackStore
from langchain_feedback.store.transactions import writing
from langchain_feedback.store.warehouse import export_parquet, rebuild_evidence_with_duckdb
from tests.unit_tests.store.tables import CHUNKS, grown
from tests.unit_tests.store.test_histories import History, steps

pytest.importorskip("duckdb", reason="the extra warehouse is missing")
parquet = pytest.importorskip("pyarrow.parquet", reason="the extra warehouse is missing")


def incremental(store):
    of_namespace = (
        select(schema.evidence)
        .join(schema.questions, schema.questions.c.question_id == schema.evidence.c.question_id)
        .where(schema.questions.c.namespace == store.namespace)
    )
    with store._reading() as connection:
        return sorted(tuple(row) for row in connection.execute(of_namespace))


def rebuilt(store, folder, **options):
    export_parquet(store, folder)
    return rows_of(rebuild_evidence_with_duckdb(folder, threads=1, **options))


def rows_of(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def run_through(store, history):
    run = History(store)
    for name, *arguments in history:
        try:
            getattr(run, name)(*arguments)
        except (UnknownTraceError, UnknownChunkError, ValueError):
            continue


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@settings(max_examples=25)
@given(history=st.lists(steps, max_size=30), half_life=st.sampled_from([None, 30.0]))
def test_check10_it_is_the_incremental_table_bit_for_bit(tmp_path_factory, history, half_life):
    with FeedbackStore("sqlite://", half_life_days=half_life) as store:
        run_through(store, history)
        assert rebuilt(store, tmp_path_factory.mktemp("export")) == incremental(store)


@pytest.mark.parametrize(("kind", "seed"), [("sqlite", 0), ("sqlite", 1), ("postgres", 2)])
def test_check10_long_histories_with_sessions_and_clicks_agree_too(request, tmp_path, kind, seed):
    url = f"sqlite:///{tmp_path / 'feedback.db'}"
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
    with grown(url, seed=seed, traces=80) as store:
        spread(store, Random(seed))
        found = incremental(store)
        assert len(found) > 20
        assert rebuilt(store, tmp_path / "export") == found


def spread(store, random):
    """Date the votes over a year: some months have none, and sums of many ages round."""
    with writing(store) as (connection, _):
        for table, key, name in (
            (schema.signals, schema.signals.c.seq, "received_at"),
            (schema.traces, schema.traces.c.trace_id, "created_at"),
        ):
            first = datetime(2026, 1, 1, tzinfo=UTC)
            rows = [
                {"one": one, "when": first + timedelta(days=random.random() * 365)}
                for one in connection.scalars(select(key))
            ]
            dated = update(table).where(key == bindparam("one")).values({name: bindparam("when")})
            connection.execute(dated, rows)
    store.rebuild_evidence()


def test_what_is_held_or_dropped_does_not_count(store, tmp_path):
    store.record_trace("t1", "How long?", [], actor="ann")
    for actor in ("ann", "bob", "cy"):
        store.rate("t1", 1, actor=actor)
    with writing(store) as (connection, _):
        held = update(schema.signals).where(schema.signals.c.actor == "bob")
        connection.execute(held.values(state="held"))
    store.rebuild_evidence()
    found = rebuilt(store, tmp_path)
    assert found == incremental(store)
    assert [row[4] for row in found] == [pytest.approx(2.0)]


def test_a_click_counts_where_the_last_attempt_had_the_chunk(store, tmp_path):
    store.record_trace("t1", "How long?", CHUNKS[:3], attempt=1, actor="ann")
    store.record_trace("t1", "How long?", CHUNKS[2::-1], attempt=2, actor="ann")
    store.signal("t1", "source_click", target=CHUNKS[0])
    found = rebuilt(store, tmp_path)
    assert found == incremental(store)
    assert [row[3] for row in found] == [1.5]


def test_a_relevant_source_is_excused_when_the_answer_is_not_grounded(store, tmp_path):
    store.record_trace("t1", "How long?", CHUNKS[:2], actor="ann")
    grades = {"c0": "yes", "c1": "no"}
    store.update_trace("t1", cited=CHUNKS[:1], grounded=False, grades=grades)
    store.rate("t1", 1)
    found = rebuilt(store, tmp_path)
    assert found == incremental(store)
    assert sorted(row[4] for row in found) == [0.3, 1.0]  # of the other, and of the answer


def test_nobody_known_is_one_voter_for_each_session(store, tmp_path):
    for number, session in enumerate(["s1", "s1", "s2", None, None]):
        store.record_trace(f"t{number}", "How long?", CHUNKS[:1], session_id=session)
        store.rate(f"t{number}", 5, target="c0")
    store.record_trace("named", "How long?", CHUNKS[:1], actor="ann", session_id="s1")
    store.rate("named", 5, target="c0")
    found = rebuilt(store, tmp_path)
    assert found == incremental(store)
    assert [round(row[3], 3) for row in found] == [5.0]


def test_another_half_life_gives_what_the_store_would_have_with_it(tmp_path):
    url = f"sqlite:///{tmp_path / 'feedback.db'}"
    with grown(url, seed=5) as store:
        spread(store, Random(5))
        export_parquet(store, tmp_path / "export")
        before = incremental(store)
    for half_life in (7.0, None):
        with FeedbackStore(url, half_life_days=half_life) as store:
            options = {"half_life_days": half_life}
            table = rebuild_evidence_with_duckdb(tmp_path / "export", **options)
            assert rows_of(table) == incremental(store) != before


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=40), st.integers(1, 9))
def test_sums_are_exact_before_they_are_rounded(numbers, cut):
    np = warehouse_sums.np
    starts = np.arange(0, len(numbers), cut)
    counts = np.diff(np.append(starts, len(numbers)))
    exact = [math.fsum(numbers[at : at + cut]) for at in starts]
    assert warehouse_sums._sums(np.array(numbers), starts, counts).tolist() == exact


def test_cells_that_span_batches_are_added_up_whole(tmp_path, monkeypatch):
    with grown(f"sqlite:///{tmp_path / 'feedback.db'}", seed=2, traces=80) as store:
        whole = rebuilt(store, tmp_path / "export")
        # DuckDB hands out what it has, so cut its batches smaller here.
        original = warehouse_sums._whole_cells

        def cut(pyarrow, batches):
            pieces = (one.slice(at, 3) for one in batches for at in range(0, one.num_rows, 3))
            return original(pyarrow, pieces)

        monkeypatch.setattr(warehouse_sums, "_whole_cells", cut)
        assert rows_of(rebuild_evidence_with_duckdb(tmp_path / "export")) == whole


def test_an_empty_store_has_no_evidence(store, tmp_path):
    assert rebuilt(store, tmp_path) == []


def test_files_are_filed_by_month_and_hold_the_rows(tmp_path):
    with grown(f"sqlite:///{tmp_path / 'feedback.db'}", seed=3) as store:
        spread(store, Random(3))
        done = export_parquet(store, tmp_path / "export")
    manifest = warehouse_files.read_manifest(tmp_path / "export")
    assert len(manifest.tables["signals"]) > 6
    assert manifest.rows("traces") == done.traces == 40
    instants = {"signals": "received_at", "traces": "created_at"}
    for name, column in instants.items():
        for part in manifest.tables[name]:
            table = parquet.ParquetFile(tmp_path / "export" / part.path).read()
            assert table.num_rows == part.rows
            months = {f"month={when:%Y-%m}" for when in table.column(column).to_pylist()}
            assert months == {part.path.split("/")[1]}
    assert files_in(tmp_path / "export") == sorted(["manifest.json", *manifest.paths])


def test_exporting_again_writes_only_what_changed(tmp_path):
    with grown(f"sqlite:///{tmp_path / 'feedback.db'}", seed=3) as store:
        spread(store, Random(3))
        export_parquet(store, tmp_path / "export")
        before = files_in(tmp_path / "export")
        assert export_parquet(store, tmp_path / "export").written == 0
        assert files_in(tmp_path / "export") == before
        with store._reading() as connection:
            event_id = connection.execute(
                select(schema.signals.c.event_id)
                .where(schema.signals.c.retracted_at.is_(None))
                .order_by(schema.signals.c.received_at)
            ).scalars().first()  # fmt: skip
        store.retract(event_id)
        assert export_parquet(store, tmp_path / "export").written == 1
        assert len(set(files_in(tmp_path / "export")) - set(before)) == 1
        assert rebuilt(store, tmp_path / "export") == incremental(store)


def test_who_was_forgotten_is_in_no_file_after_the_next_export(tmp_path):
    with grown(f"sqlite:///{tmp_path / 'feedback.db'}", seed=4) as store:
        export_parquet(store, tmp_path / "export")
        store.forget("ann")
        assert rebuilt(store, tmp_path / "export") == incremental(store)
    for path in (tmp_path / "export").rglob("*.parquet"):
        table = parquet.ParquetFile(path).read()
        if "actor" in table.column_names:
            assert "ann" not in table.column("actor").to_pylist()


@pytest.mark.parametrize("files", range(1, 4))
def test_after_a_failure_the_export_before_is_there(tmp_path, monkeypatch, files):
    with grown(f"sqlite:///{tmp_path / 'feedback.db'}", seed=6) as store:
        before = rebuilt(store, tmp_path / "export")
        grown_on(store)
        written, settle = [], warehouse_files._settle

        def fail(partial, path):
            written.append(path)
            if len(written) > files:
                raise OSError(28, "No space left on device")
            settle(partial, path)

        monkeypatch.setattr(warehouse_files, "_settle", fail)
        with pytest.raises(StoreError, match="the one before is as it was"):
            export_parquet(store, tmp_path / "export")
        assert rows_of(rebuild_evidence_with_duckdb(tmp_path / "export")) == before
        monkeypatch.undo()
        assert rebuilt(store, tmp_path / "export") == incremental(store) != before
        listed = warehouse_files.read_manifest(tmp_path / "export").paths
        assert files_in(tmp_path / "export") == sorted(["manifest.json", *listed])


def grown_on(store):
    store.record_trace("new", "Another one?", [], actor="dee")
    store.rate("new", 5, actor="dee")


def test_half_a_file_of_an_export_that_was_killed_goes_and_one_at_work_stays(store, tmp_path):
    store.record_trace("t1", "How long?", CHUNKS[:1])
    dead, alive = (tmp_path / f".{name}.partial" for name in ("dead", "alive"))
    for path in (dead, alive):
        path.write_bytes(b"half")
    two_hours_ago = time.time() - 7_200
    os.utime(dead, (two_hours_ago, two_hours_ago))
    export_parquet(store, tmp_path)
    assert not dead.exists()
    assert alive.exists()


def test_namespaces_do_not_mix(store, tmp_path):
    grown_on(store)
    other = store.scoped("other")
    other.record_trace("o1", "Another one?", [], actor="eve")
    other.rate("o1", 1, actor="eve")
    assert rebuilt(store, tmp_path / "a") == incremental(store)
    assert rebuilt(other, tmp_path / "b") == incremental(other)
    with pytest.raises(StoreError, match="namespace 'default'"):
        export_parquet(other, tmp_path / "a")


def test_a_folder_without_a_complete_export_is_refused(tmp_path):
    with pytest.raises(StoreError, match="no complete export"):
        rebuild_evidence_with_duckdb(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(StoreError, match="format"):
        rebuild_evidence_with_duckdb(tmp_path)


def test_a_file_that_went_meanwhile_is_a_store_error(store, tmp_path):
    grown_on(store)
    export_parquet(store, tmp_path)
    next(tmp_path.glob("traces/*/*.parquet")).unlink()
    with pytest.raises(StoreError, match="written anew"):
        rebuild_evidence_with_duckdb(tmp_path)


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text()
    marked = r"<!-- warehouse: example -->\n```py\n(.*?)^```$"
    example = re.search(marked, page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    exec(compile(example[1], "scaling.md", "exec"), {})  # noqa: S102  our own documentation
    told = capsys.readouterr().out
    assert "signals=1, traces=1, candidates=1, files=3, written=3" in told
    assert "'positive': 1.0" in told
