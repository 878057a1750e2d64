"""What reviewers decided, as files: who is in them, what they hold, when they appear."""

import json
import threading
from dataclasses import replace

import pytest
from langchain_core.documents import Document

from langchain_feedback.errors import StoreError
from langchain_feedback.loop import exports
from langchain_feedback.loop._exporting import files as _export_files
from langchain_feedback.loop.exports import export
from langchain_feedback.loop.mining import mine
from langchain_feedback.loop.review import ReviewQueue
from langchain_feedback.store.feedback_store import FeedbackStore
from tests.unit_tests.loop.reviewed import WHEN, chunk, question, unreviewed

FILES = ("jsonl", "pairs", "triplets", "lists")
FOLDERS = ("beir", "argilla")


@pytest.fixture
def given(monkeypatch):
    """Say what is reviewed; the store is asked for it like for any other."""

    def give(*questions):
        def asked(store, *, include_unreviewed=False):
            return [one for one in questions if include_unreviewed or not one.needs_review]

        monkeypatch.setattr(exports, "reviewed_questions", asked)

    return give


@pytest.fixture
def memory():
    with FeedbackStore("sqlite://") as store:
        yield store


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(store, to, path, **options):
    export(store, to, path, **options)
    return lines(path)


def test_jsonl_holds_every_field_and_the_verdict_check14(memory, given, tmp_path):
    given(question(correction="14 days.", wrong=("a", "c")))
    [line] = write(memory, "jsonl", tmp_path / "out.jsonl")
    assert line["right"] == ["b"]
    assert line["wrong"] == ["a", "c"]
    assert (line["verdict"], line["reviewers"]) == ("confirm", ["ann"])
    assert line["decided_at"] == WHEN.isoformat()
    assert [one["text"] for one in line["pool"]] == [f"Text of {one}." for one in "abcd"]
    assert (line["needs_review"], line["correction"]) == (False, "14 days.")
    assert line["found"] == []


def test_pairs_are_what_was_named_and_nothing_else(memory, given, tmp_path):
    given(question(right=("b", "c")), question(2, right=(), none_exists=True))
    done = export(memory, "pairs", tmp_path / "pairs.jsonl")
    assert (done.rows, done.questions, done.left_out) == (2, 1, 1)
    assert lines(tmp_path / "pairs.jsonl") == [
        {"anchor": "Question 1?", "positive": "Text of b."},
        {"anchor": "Question 1?", "positive": "Text of c."},
    ]


def test_triplets_take_confirmed_negatives_first_then_the_whole_rest_of_the_pool(
    memory, given, tmp_path
):
    given(question(wrong=("d",)))
    rows = write(memory, "triplets", tmp_path / "all.jsonl")
    assert [row["negative"] for row in rows] == [f"Text of {one}." for one in "dac"]
    rows = write(memory, "triplets", tmp_path / "sure.jsonl", negatives="confirmed")
    assert [row["negative"] for row in rows] == ["Text of d."]


def test_lists_are_the_whole_pool_in_its_order(memory, given, tmp_path):
    given(question())
    [row] = write(memory, "lists", tmp_path / "lists.jsonl")
    assert row == {
        "query": "Question 1?",
        "docs": [f"Text of {one}." for one in "abcd"],
        "labels": [0, 1, 0, 0],
    }


def test_a_copy_of_the_right_text_is_never_a_negative(memory, given, tmp_path):
    twin = chunk("twin", "Text of b.", rank=4)
    given(question(pool=("a", "b", "c", twin), wrong=("a", "twin")))
    rows = write(memory, "triplets", tmp_path / "triplets.jsonl")
    assert [(row["positive"], row["negative"]) for row in rows] == [
        ("Text of b.", "Text of a."),
        ("Text of b.", "Text of c."),
    ]
    [row] = write(memory, "lists", tmp_path / "lists.jsonl")
    assert row["labels"] == [0, 1, 0, 1]
    export(memory, "beir", tmp_path / "beir")
    assert "q1\ttwin\t1\n" in (tmp_path / "beir/qrels/test.tsv").read_text()


def test_a_chunk_found_by_the_search_box_comes_with_its_text(store, given, tmp_path):
    store.record_trace("t1", "Q?", [Document("The hidden answer.", id="z")])
    given(question(right=("z", "gone")))
    assert write(store, "pairs", tmp_path / "pairs.jsonl") == [
        {"anchor": "Question 1?", "positive": "The hidden answer."}
    ]
    [row] = write(store, "lists", tmp_path / "lists.jsonl")
    assert (row["docs"][-1], row["labels"]) == ("The hidden answer.", [0, 0, 0, 0, 1])
    [line] = write(store, "jsonl", tmp_path / "all.jsonl")
    assert [one["chunk_id"] for one in line["found"]] == ["z"]
    assert line["right"] == ["z", "gone"]


def test_a_chunk_whose_text_nobody_kept_is_nothing_to_learn_from(memory, given, tmp_path):
    lost = replace(chunk("lost"), text="")
    given(question(pool=(lost, "b", "c"), wrong=("lost",)), question(2, pool=(lost, "c")))
    [row] = write(memory, "lists", tmp_path / "lists.jsonl")
    assert row["docs"] == ["Text of b.", "Text of c."]
    export(memory, "beir", tmp_path / "beir")
    assert [one["_id"] for one in lines(tmp_path / "beir/corpus.jsonl")] == ["b", "c"]
    whole = write(memory, "jsonl", tmp_path / "all.jsonl")
    assert [len(line["pool"]) for line in whole] == [3, 2]


def test_another_namespaces_chunk_is_not_found(store, given, tmp_path):
    store.scoped("other").record_trace("t1", "Q?", [Document("Secret.", id="z")])
    given(question(right=("z",)))
    assert write(store, "pairs", tmp_path / "pairs.jsonl") == []


def test_beir_has_stable_ids_that_qrels_can_hold(memory, given, tmp_path):
    spaced = chunk("my faq.md#1\t100%", heading="Refunds")
    given(question(7, pool=(spaced, "b"), right=(spaced.chunk_id,), wrong=("b",)))
    done = export(memory, "beir", tmp_path / "out")
    assert done.rows == 1
    assert [path.name for path in done.files] == ["corpus.jsonl", "queries.jsonl", "test.tsv"]
    qrels = (tmp_path / "out/qrels/test.tsv").read_text().splitlines()
    assert qrels == [
        "query-id\tcorpus-id\tscore",
        "q7\tb\t0",
        "q7\tmy%20faq.md#1%09100%25\t1",
    ]
    corpus = {one["_id"]: one for one in lines(tmp_path / "out/corpus.jsonl")}
    one = corpus["my%20faq.md#1%09100%25"]
    assert (one["title"], one["metadata"]["chunk_id"]) == ("Refunds", spaced.chunk_id)
    [query] = lines(tmp_path / "out/queries.jsonl")
    assert query == {"_id": "q7", "text": "Question 7?", "metadata": {"needs_review": False}}


def test_beir_judges_a_question_once_and_drops_what_was_said_of_an_older_text(
    memory, given, tmp_path
):
    later = WHEN.replace(year=2027)
    new = chunk("a", "A new text.")
    given(
        question(1, item_id="new", pool=(new, "b"), right=("a",), wrong=(), decided_at=later),
        question(1, right=("b",), wrong=("a",)),
        question(2, right=("a",), wrong=()),
        question(3, right=(), none_exists=True),
    )
    done = export(memory, "beir", tmp_path / "out")
    assert (done.rows, done.left_out) == (1, 2)
    qrels = (tmp_path / "out/qrels/test.tsv").read_text().splitlines()[1:]
    assert qrels == ["q1\ta\t1", "q1\tb\t1"]
    corpus = {one["_id"]: one["text"] for one in lines(tmp_path / "out/corpus.jsonl")}
    assert corpus["a"] == "A new text."


@pytest.mark.parametrize("to", ["jsonl", "beir", "argilla"])
def test_unreviewed_rows_go_along_when_asked_for_and_say_so_check14(memory, given, tmp_path, to):
    given(question(), unreviewed())
    assert export(memory, to, tmp_path / "reviewed").rows == 1
    path = tmp_path / "all"
    assert export(memory, to, path, include_unreviewed=True).rows == 2
    if to == "jsonl":
        marks = [one["needs_review"] for one in lines(path)]
    elif to == "beir":
        marks = [one["metadata"]["needs_review"] for one in lines(path / "queries.jsonl")]
        assert "q9" not in (path / "qrels/test.tsv").read_text()
    else:
        records = json.loads((path / "records.json").read_text())
        marks = [one["metadata"]["needs_review"] == "true" for one in records]
        assert records[1]["suggestions"] == {}
    assert marks == [False, True]


@pytest.mark.parametrize("to", ["pairs", "triplets", "lists"])
def test_what_trains_has_no_place_for_the_mark_and_refuses_check14(memory, given, tmp_path, to):
    given(unreviewed(right=("b",)))
    with pytest.raises(ValueError, match="needs_review"):
        export(memory, to, tmp_path / "out", include_unreviewed=True)
    assert write(memory, to, tmp_path / "out") == []


@pytest.mark.parametrize("to", FILES + FOLDERS)
def test_nothing_reviewed_is_an_empty_export(memory, given, tmp_path, to):
    given()
    done = export(memory, to, tmp_path / "out")
    assert done.rows == done.questions == done.left_out == 0
    assert all(path.exists() for path in done.files)


@pytest.mark.parametrize("to", FILES + FOLDERS)
def test_what_is_there_is_replaced_only_when_told(memory, given, tmp_path, to):
    given(question())
    path = tmp_path / "out"
    first = export(memory, to, path)
    before = [one.read_text() for one in first.files]
    given(question(2))
    with pytest.raises(ValueError, match="overwrite"):
        export(memory, to, path)
    assert [one.read_text() for one in first.files] == before
    export(memory, to, path, overwrite=True)
    assert [one.read_text() for one in first.files] != before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out"]


def test_who_reads_while_a_file_is_replaced_reads_the_old_one_to_its_end(memory, given, tmp_path):
    given(question())
    path = tmp_path / "out"
    export(memory, "pairs", path)
    with path.open() as before:
        given(question(2))
        export(memory, "pairs", path, overwrite=True)
        assert "Question 1?" in before.read()
    assert "Question 2?" in path.read_text()


def test_other_files_of_a_folder_stay(memory, given, tmp_path):
    given(question())
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists"):
        export(memory, "beir", tmp_path)
    export(memory, "beir", tmp_path, overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "qrels/test.tsv").exists()


@pytest.mark.parametrize("to", FILES + FOLDERS)
def test_a_file_appears_when_it_is_complete(memory, given, tmp_path, monkeypatch, to):
    given(question())

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_export_files.os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        export(memory, to, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("to", "options", "says"),
    [
        ("csv", {"path": "out"}, "one of jsonl"),
        ("jsonl", {}, "needs a path"),
        ("jsonl", {"path": "out", "dataset": "d"}, "no dataset"),
        ("langsmith", {"path": "out", "dataset": "d"}, "no path"),
        ("langsmith", {}, "needs a dataset"),
        ("jsonl", {"path": "nowhere/out"}, "no folder"),
        ("jsonl", {"path": "."}, "a folder"),
        ("beir", {"path": "file"}, "a file"),
    ],
)
def test_arguments_that_do_not_fit_are_told(  # noqa: PLR0917  fixtures
    memory, given, tmp_path, monkeypatch, to, options, says
):
    given(question())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=says):
        export(memory, to, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_real_verdicts_go_out_and_what_is_undone_does_not_check14(store, tmp_path):
    pool = [Document(f"Text of {one}.", id=one, metadata={"source": "faq.md"}) for one in "abcd"]
    for number in (1, 2):
        trace_id = f"t{number}"
        store.record_trace(trace_id, f"Question {number}?", pool, answer="An answer.")
        store.update_trace(trace_id, cited=[pool[0]])
        for name in ("ann", "ben"):
            store.signal(trace_id, "thumbs_down", actor=name)
    store.record_trace("t3", "Another one?", pool, answer="An answer.")
    store.rate("t3", 5, actor="cy")
    queue = ReviewQueue(store, double=0)
    assert mine(store, queue=queue).added == 2
    assert export(store, "jsonl", tmp_path / "none.jsonl").rows == 0
    rows = write(store, "jsonl", tmp_path / "open.jsonl", include_unreviewed=True)
    assert [row["needs_review"] for row in rows] == [True, True]

    item = queue.claim("dora")
    queue.decide(item, "unclear", right_chunks=["c"])
    [row] = write(store, "lists", tmp_path / "lists.jsonl")
    assert row["query"] == item.question
    assert row["docs"] == [one.page_content for one in pool]
    assert row["labels"] == [0, 0, 1, 0]
    [line] = write(store, "jsonl", tmp_path / "all.jsonl")
    assert (line["reviewers"], line["item_id"]) == (["dora"], item.item_id)

    queue.undo("dora")
    assert write(store, "lists", tmp_path / "after.jsonl") == []
    other = store.scoped("other")
    assert write(other, "jsonl", tmp_path / "other.jsonl", include_unreviewed=True) == []


def test_text_of_any_script_and_line_breaks_stay_one_line(memory, given, tmp_path):
    odd = chunk("b", 'Zeile 1\nZeile\u2028 2 \U0001f600 "q"\r\n')
    given(question(pool=("a", odd)))
    export(memory, "pairs", tmp_path / "out")
    data = (tmp_path / "out").read_bytes()
    assert data.count(b"\n") == 1
    assert json.loads(data)["positive"] == odd.text


def test_two_exports_at_once_leave_one_whole_file(memory, given, tmp_path):
    given(*(question(number) for number in range(200)))
    path = tmp_path / "out"
    path.touch()

    def run():
        export(memory, "jsonl", path, overwrite=True)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(path)) == 200
    assert [one.name for one in tmp_path.iterdir()] == ["out"]
