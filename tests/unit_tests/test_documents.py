"""Chunk identity and copies."""

import json
import threading
from collections import OrderedDict, deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from langchain_feedback.documents import (
    chunk_key,
    content_hash,
    copy_document,
    plain,
    source_of,
    unique_documents,
)

LONG = "The same opening of a page. " * 12
VOLATILE = ("score", "_score", "relevance_score", "similarity", "distance", "rank", "feedback")

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
metadata = st.dictionaries(st.text(), values, max_size=4)
documents = st.builds(Document, st.text(), id=st.none() | st.text(min_size=1), metadata=metadata)


# -- A08: keys


def test_a08_an_absent_id_gives_a_digest_that_is_the_same_for_an_equal_chunk():
    first, second = (Document(LONG, metadata={"source": "a.md"}) for _ in range(2))
    assert first.id is None
    assert chunk_key(first) == chunk_key(second)
    assert chunk_key(first) != chunk_key(Document(LONG, metadata={"source": "b.md"}))
    assert chunk_key(first) != chunk_key(Document(LONG))


def test_a08_metadata_may_hold_lists_and_dicts():
    nested = {"tags": ["a", {"b": [1]}], "at": {"page": 1}, "source": ["x", "y"]}
    assert chunk_key(Document("text", metadata=nested)) == chunk_key(
        Document("text", metadata=json.loads(json.dumps(nested)))
    )


def test_a08_the_documents_id_wins_over_a_metadata_id_that_disagrees():
    document = Document("text", id="own", metadata={"id": "other", "_id": "third"})
    assert chunk_key(document) == "own"
    assert chunk_key(document) == chunk_key(Document("text", id="own", metadata={"id": "else"}))


def test_a08_a_shared_opening_of_300_characters_is_not_the_same_chunk():
    assert len(LONG) > 300
    assert chunk_key(Document(LONG + "A")) != chunk_key(Document(LONG + "B"))


@pytest.mark.parametrize("field", VOLATILE)
@pytest.mark.parametrize("identity", [{}, {"id": "own"}])
def test_a08_a_score_never_enters_the_key(field, identity):
    keys = {
        chunk_key(Document("text", metadata={"source": "a.md", field: score}, **identity))
        for score in (0.1, 0.9, {"belief": 1})
    }
    assert len(keys) == 1


def test_a08_the_order_is_configured_field_then_id_then_qdrants_then_digest():
    full = {"sku": "configured", "_id": "qdrant"}
    assert chunk_key(Document("text", id="own", metadata=full), "sku") == "configured"
    assert chunk_key(Document("text", id="own", metadata=full)) == "own"
    assert chunk_key(Document("text", id="own", metadata={"_id": "qdrant"}), "sku") == "own"
    assert chunk_key(Document("text", metadata=full)) == "qdrant"
    assert chunk_key(Document("text"), "sku").startswith("sha256:")


@pytest.mark.parametrize("empty", [None, ""])
def test_a08_an_empty_identity_is_none(empty):
    document = Document("text", metadata={"sku": empty, "_id": empty})
    assert chunk_key(document, "sku") == chunk_key(Document("text"))


@pytest.mark.parametrize(("value", "key"), [(0, "0"), (7, "7"), (np.int64(7), "7")])
def test_a08_an_id_may_be_a_number(value, key):
    assert chunk_key(Document("text", metadata={"sku": value}), "sku") == key


@given(documents, st.sampled_from(VOLATILE), values)
def test_a08_any_document_has_a_stable_key_that_a_score_does_not_move(document, field, score):
    key = chunk_key(document)
    assert key
    assert key == chunk_key(Document.model_validate(document.model_dump()))
    scored = Document(
        document.page_content, id=document.id, metadata={**document.metadata, field: score}
    )
    assert chunk_key(scored) == key


@given(st.text(), st.text(), st.text())
def test_a08_text_and_source_cannot_imitate_each_other(text, middle, source):
    one = Document(text + middle, metadata={"source": source})
    two = Document(text, metadata={"source": middle + source})
    assert (chunk_key(one) == chunk_key(two)) == (middle == "")


def test_a08_a_lone_surrogate_is_text_too():
    assert chunk_key(Document("\ud800")) != chunk_key(Document("\udfff"))


@pytest.mark.parametrize("value", [None, "text", {"page_content": "text"}])
def test_what_is_no_document_has_no_key(value):
    with pytest.raises(TypeError, match="Document"):
        chunk_key(value)


# -- content hash


def test_the_content_hash_is_the_sha_256_of_the_text_alone():
    known = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert content_hash(Document("")) == known
    one, two = Document("text", id="1", metadata={"a": 1}), Document("text")
    assert content_hash(one) == content_hash(two) != content_hash(Document("text "))


# -- A07: copies


@pytest.fixture
def index():
    stored = [
        Document(f"Chunk {i}.", id=f"c{i}", metadata={"tags": ["a"], "at": {"page": i}})
        for i in range(3)
    ]
    return FAISS.from_documents(stored, DeterministicFakeEmbedding(size=8), ids=["c0", "c1", "c2"])


def test_a07_the_objects_of_a_faiss_store_stay_untouched(index):
    stored = index.get_by_ids(["c0", "c1", "c2"])
    before = [doc.model_dump_json() for doc in stored]
    found = index.as_retriever(search_kwargs={"k": 3}).invoke("Chunk 1.")
    live = [any(doc is other for other in stored) for doc in found]
    assert live == [True] * 3, "this store returns its own objects: else the test shows nothing"
    for copied in map(copy_document, found):
        copied.metadata["relevance_score"] = 1.0
        copied.metadata["tags"].append("b")
        copied.metadata["at"]["page"] = 99
        copied.page_content = "changed"
    assert [doc.model_dump_json() for doc in index.get_by_ids(["c0", "c1", "c2"])] == before


class Special(Document):
    """A document of somebody's own."""

    owner: str = "me"


def test_a07_id_type_and_nested_metadata_survive():
    stored = Special(
        page_content="text", id="c", owner="you", metadata={"a": {"b": [1, (2, {3})]}}
    )
    copied = copy_document(stored)
    assert copied == stored
    assert copied is not stored
    assert (type(copied), copied.id, copied.type, copied.owner) == (
        Special,
        "c",
        "Document",
        "you",
    )
    assert copied.metadata["a"] is not stored.metadata["a"]
    assert copied.metadata["a"]["b"][1][1] is not stored.metadata["a"]["b"][1][1]


@given(documents)
def test_a07_a_copy_is_equal_shares_no_container_and_has_the_same_key(document):
    before = document.model_dump_json()
    copied = copy_document(document)
    assert copied == document
    assert not _containers(copied.metadata) & _containers(document.metadata)
    assert chunk_key(copied) == chunk_key(document)
    copied.metadata["new"] = 1
    assert document.model_dump_json() == before


def _containers(value: Any) -> set[int]:
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return set()
    return {id(value)}.union(*map(_containers, inner))


def test_a07_objects_of_any_kind_are_copied_too():
    stored = Document("text", metadata={"raw": bytearray(b"a"), "queue": deque([[1]])})
    copied = copy_document(stored)
    copied.metadata["raw"].extend(b"b")
    copied.metadata["queue"][0].append(2)
    assert stored.metadata == {"raw": bytearray(b"a"), "queue": deque([[1]])}


def test_a07_what_cannot_be_copied_is_shared_and_costs_nothing_else():
    lock, tags = threading.Lock(), ["a"]
    stored = Document("text", metadata={"lock": lock, "in": [lock, tags], "score": np.int64(1)})
    copied = copy_document(stored)
    assert copied.metadata == {"lock": lock, "in": [lock, ["a"]], "score": 1}
    assert copied.metadata["in"][1] is not tags


# -- A20: NumPy


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.bool_(True), True),  # noqa: FBT003  the scalar type is the point
        (np.int64(7), 7),
        (np.uint8(7), 7),
        (np.str_("seven"), "seven"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array(7), 7),
        (np.array([]), []),
        (np.array(np.float32(0.5), dtype=object), 0.5),
        (np.array([np.float32(0.5), {"x": np.int64(1)}], dtype=object), [0.5, {"x": 1}]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("nested", [False, True])
def test_a20_numpy_values_become_plain_python(value, expected, nested):
    stored = {"a": [{"b": (value, "x")}]} if nested else {"a": value}
    copied = copy_document(Document("text", metadata=stored)).metadata
    wanted = {"a": [{"b": (expected, "x")}]} if nested else {"a": expected}
    assert copied == wanted
    assert not _numpy(copied)
    json.dumps(copied)


def _numpy(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_numpy(item) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_numpy, value))
    return isinstance(value, np.generic | np.ndarray)


def test_a20_keys_sets_and_ordered_dicts_too():
    value = {np.str_("k"): {np.int64(1)}, "f": frozenset({np.int64(1)})}
    value["o"] = OrderedDict(z=np.float32(0.5), a=np.bool_(False))  # noqa: FBT003
    copied = plain(value)
    assert copied == {"k": {1}, "f": {1}, "o": {"z": 0.5, "a": False}}
    assert list(copied["o"]) == ["z", "a"]
    assert not _numpy(copied)


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a20_times_stay_times(unit):
    when = plain(np.datetime64("2026-03-30T12:00:00", unit))
    assert when.isoformat() == "2026-03-30T12:00:00"
    assert plain(np.timedelta64(3_000_000_000, "ns")).total_seconds() == 3
    assert plain(np.array(["2026-03-30"], dtype=f"datetime64[{unit}]"))[0].day == 30


def test_a20_the_stored_document_keeps_its_numpy_values():
    stored = Document("text", metadata={"score": np.float32(0.5), "v": np.array([1])})
    copy_document(stored)
    assert isinstance(stored.metadata["score"], np.float32)
    assert isinstance(stored.metadata["v"], np.ndarray)


# -- unique_documents and source_of


def test_the_first_document_of_each_key_stays_in_order():
    found = [
        Document("a", id="1"),
        Document("b"),
        Document("other text", id="1"),
        Document("b", metadata={"score": 0.3}),
        Document("b", metadata={"source": "elsewhere"}),
    ]
    assert unique_documents(iter(found)) == [found[0], found[1], found[4]]
    assert unique_documents(found)[0] is found[0]
    assert unique_documents([]) == []


def test_the_configured_field_decides_what_is_the_same():
    found = [Document("a", id=str(i), metadata={"sku": i // 2}) for i in range(4)]
    assert [doc.id for doc in unique_documents(found, "sku")] == ["0", "2"]


@given(st.lists(documents, max_size=6))
def test_no_key_is_left_twice_and_none_is_lost(found):
    kept = unique_documents(found)
    keys = [chunk_key(doc) for doc in kept]
    assert len(set(keys)) == len(keys)
    assert set(keys) == {chunk_key(doc) for doc in found}


@pytest.mark.parametrize(
    ("identity", "fields", "expected"),
    [
        (None, {}, ""),
        ("c1", {}, "c1"),
        ("c1", {"source": "a.pdf"}, "a.pdf"),
        (None, {"source": "a.pdf", "page": 0}, "a.pdf, page 0"),
        (None, {"page": 3}, "page 3"),
        (None, {"source": "a.md", "heading": "Refunds"}, "a.md > Refunds"),
        (None, {"heading": "Refunds"}, "Refunds"),
        (None, {"source": "a.pdf", "page": 2, "heading": "Refunds"}, "a.pdf, page 2"),
        (None, {"source": None, "page": None, "heading": ""}, ""),
    ],
)
def test_the_source_is_named_for_people(identity, fields, expected):
    assert source_of(Document("text", id=identity, metadata=fields)) == expected
