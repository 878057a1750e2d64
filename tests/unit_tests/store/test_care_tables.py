"""What the tables of index care promise by themselves."""

from datetime import UTC, datetime

import pytest
from langchain_core.documents import Document
from sqlalchemy import delete, insert, select, update

from langchain_feedback.errors import StoreRejectedError
from langchain_feedback.store.care_schema import derived, derived_sources, index_versions
from langchain_feedback.store.schema import chunks
from langchain_feedback.store.transactions import reading, writing

NOW = datetime(2026, 11, 30, tzinfo=UTC)
VERSION = {
    "namespace": "default",
    "version": "v1",
    "status": "active",
    "locator": "{}",
    "embedder": "e",
    "dimension": 8,
    "chunk_count": 1,
    "checks": "{}",
    "created_at": NOW,
}


def test_one_version_of_a_namespace_is_active(store):
    with writing(store) as (connection, _):
        rows = [{}, {"namespace": "b"}, {"version": "v2", "status": "ready"}]
        connection.execute(insert(index_versions), [VERSION | row for row in rows])
    with pytest.raises(StoreRejectedError), writing(store) as (connection, _):
        connection.execute(insert(index_versions), VERSION | {"version": "v3"})
    with writing(store) as (connection, _):
        row = index_versions.c
        mine = row.namespace == "default"
        connection.execute(update(index_versions).where(mine).values(status="retired"))
        v2 = mine & (row.version == "v2")
        connection.execute(update(index_versions).where(v2).values(status="active"))


def test_a_chunk_that_is_seen_again_keeps_its_standing(store):
    page = Document("Refunds take 14 days.", id="refund", metadata={"source": "faq.md"})
    store.record_trace("t1", "How long?", [page])
    with reading(store) as connection:
        assert connection.execute(select(chunks.c.status)).scalar_one() == "live"
    with writing(store) as (connection, _):
        care = {"status": "demoted", "position": 3, "scope": "a", "first_seen": NOW}
        connection.execute(update(chunks).values(**care))
    moved = Document(page.page_content, id="refund", metadata={"source": "faq.md", "page": 2})
    store.record_trace("t2", "How long is it?", [moved])
    with reading(store) as connection:
        row = connection.execute(select(chunks)).mappings().one()
    assert {key: row[key] for key in care} == care
    assert '"page": 2' in row["metadata"]


def test_sources_go_with_what_was_derived_from_them(store):
    with writing(store) as (connection, _):
        row = {"derived_id": "d", "namespace": "default", "text": "t", "status": "active"}
        connection.execute(insert(derived), row | {"votes": "{}"})
        source = {"derived_id": "d", "chunk_id": "c", "content_hash": "h"}
        connection.execute(insert(derived_sources), source)
        connection.execute(delete(derived))
        assert connection.execute(select(derived_sources)).all() == []
