"""Aliases and views: what readers without a registry see of a switch."""

import threading
import time
from datetime import UTC, datetime

import pytest
from langchain_core.runnables import RunnableLambda
from sqlalchemy import create_engine, text

from langchain_feedback.index.versions import IndexRegistry, IndexVersion
from langchain_feedback.integrations.aliases import AliasError, PostgresView, QdrantAlias
from langchain_feedback.store.feedback_store import FeedbackStore
from tests.unit_tests.index.version_kit import SIZE, Model, documents, question

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def version(name, **locator):
    times = {"created_at": NOW, "activated_at": NOW, "retired_at": None}
    return IndexVersion(name, "active", locator, None, 1, {}, **times)


@pytest.fixture
def registry(tmp_path):
    with FeedbackStore(f"sqlite:///{tmp_path / 'feedback.db'}", timeout_s=20) as store:
        yield IndexRegistry(store)


def filled(registry, key, opened):
    """Make two versions ready, in collections or tables `kb_v1` and `kb_v2`."""
    for name in ("v1", "v2"):
        registry.register(name, Model(name), locator={key: f"kb_{name}"})
        registry.ready(
            name, open_version=opened, chunk_count=12, embedder_of=lambda _, of=name: Model(of)
        )


def watched(read, switch, turns=20, readers=4):
    """Read in threads while something is switched; return what was read, and what went wrong."""
    seen, wrong, reads, stop = set(), [], [], threading.Event()

    def reading():
        while not stop.is_set():
            try:
                seen.add(frozenset(read()))
                reads.append(1)
            except Exception as error:  # noqa: BLE001  counted
                wrong.append(repr(error))

    threads = [threading.Thread(target=reading) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for turn in range(turns):
        switch(turn)
        # Each reader has begun a read since, unless it failed.
        until = len(reads) + 2 * readers
        while len(reads) < until and not wrong:
            time.sleep(0.001)
    stop.set()
    for thread in threads:
        thread.join()
    return seen, wrong


# -- Qdrant


@pytest.fixture
def qdrant():
    qdrant_client = pytest.importorskip("qdrant_client", reason="qdrant-client is missing")
    pytest.importorskip("langchain_qdrant", reason="langchain-qdrant is missing")
    client = qdrant_client.QdrantClient(":memory:")
    yield client
    client.close()


def collection(client, name, model=None):
    from langchain_qdrant import QdrantVectorStore  # noqa: PLC0415
    from qdrant_client import models  # noqa: PLC0415

    if model is None:
        cosine = models.VectorParams(size=SIZE, distance=models.Distance.COSINE)
        client.create_collection(name, vectors_config=cosine)
        pages = documents(name.removeprefix("kb_"))
        store = collection(client, name, Model(name.removeprefix("kb_")))
        store.add_texts([one.page_content for one in pages])
        return store
    return QdrantVectorStore(client, name, model, validate_collection_config=False)


def test_an_alias_of_qdrant_follows_swaps_and_rollbacks(qdrant, registry):
    for name in ("kb_v1", "kb_v2"):
        collection(qdrant, name)
    alias = QdrantAlias(qdrant, "kb")
    hooked = IndexRegistry(registry.store, hooks=[alias])

    def opened(version):
        name = version.locator["collection"]
        return collection(qdrant, name, Model(version.version)).as_retriever()

    filled(hooked, "collection", opened)
    assert alias.current() is None
    assert hooked.activate("v1", expected=None).untold == {}
    assert alias.current() == "kb_v1"

    def read():
        found, _ = qdrant.scroll("kb", limit=100)
        return {one.payload["page_content"].split()[-1] for one in found}

    def switch(turn):
        switched = hooked.rollback() if turn % 2 else hooked.activate("v2", expected="v1")
        assert switched.untold == {}
        assert read() == {f"{switched.active.version}."}

    assert watched(read, switch) == ({frozenset({"v1."}), frozenset({"v2."})}, [])
    assert alias.current() == "kb_v1"


def test_an_alias_moves_no_embedder(qdrant):
    # Which is why `SwappableRetriever` exists: the wrong embedder finds something, without error.
    for name in ("kb_v1", "kb_v2"):
        collection(qdrant, name)
    reader = collection(qdrant, "kb", Model("v1"))
    alias, right = QdrantAlias(qdrant, "kb"), {}
    for name in ("v1", "v2"):
        alias(version(name, collection=f"kb_{name}"))
        found = [reader.similarity_search(question(page), k=1)[0] for page in range(12)]
        right[name] = sum(
            one.page_content.startswith(f"Page {page} ") for page, one in enumerate(found)
        )
    assert right["v1"] == 12
    assert right["v2"] < 6


def test_an_alias_is_not_moved_to_what_is_not_there(qdrant):
    collection(qdrant, "kb_v1")
    alias = QdrantAlias(qdrant, "kb")
    alias(version("v1", collection="kb_v1"))
    with pytest.raises(AliasError, match="no collection 'kb_v2'"):
        alias(version("v2", collection="kb_v2"))
    with pytest.raises(AliasError, match="has no 'collection'"):
        alias(version("v2", table="kb_v2"))
    assert alias.current() == "kb_v1"
    with pytest.raises(AliasError, match="no alias can have its name"):
        QdrantAlias(qdrant, "kb_v1")(version("v1", collection="kb_v1"))


def test_an_alias_that_is_right_is_left_alone(qdrant, monkeypatch):
    collection(qdrant, "kb_v1")
    alias = QdrantAlias(qdrant, "kb", lambda of: f"kb_{of.version}")
    alias(version("v1"))
    monkeypatch.delattr(type(qdrant), "update_collection_aliases")
    alias(version("v1"))
    assert alias.current() == "kb_v1"


# -- PostgreSQL


@pytest.fixture
def engine(postgres_url):
    made = create_engine(postgres_url)
    yield made
    made.dispose()


def table(engine, name, column="text", pages=12):
    with engine.begin() as connection:
        connection.execute(text(f'CREATE TABLE "{name}" (id text PRIMARY KEY, {column} text)'))
        rows = [{"id": f"{page}", "text": f"{name}"} for page in range(pages)]
        connection.execute(text(f'INSERT INTO "{name}" VALUES (:id, :text)'), rows)  # noqa: S608


def content(engine, view="kb"):
    with engine.connect() as connection:
        return list(connection.execute(text(f'SELECT text FROM "{view}"')).scalars())  # noqa: S608


def test_a_view_follows_swaps_and_rollbacks(engine, registry):
    for name in ("kb_v1", "kb_v2"):
        table(engine, name)
    view = PostgresView(engine, "kb")
    hooked = IndexRegistry(registry.store, hooks=[view])
    filled(hooked, "table", lambda _: RunnableLambda(lambda _: documents("v1")))
    assert view.current() is None
    assert hooked.activate("v1", expected=None).untold == {}

    def switch(turn):
        switched = hooked.rollback() if turn % 2 else hooked.activate("v2", expected="v1")
        assert switched.untold == {}
        assert set(content(engine)) == {f"kb_{switched.active.version}"}

    seen, wrong = watched(lambda: content(engine), switch)
    assert (seen, wrong) == ({frozenset({"kb_v1"}), frozenset({"kb_v2"})}, [])
    assert view.current() == "kb_v1"


def test_a_vector_store_reads_and_writes_through_the_view(postgres_url):
    langchain_postgres = pytest.importorskip("langchain_postgres")
    pages = langchain_postgres.PGEngine.from_connection_string(postgres_url)
    view = PostgresView(postgres_url, "kb")
    with view.engine.begin() as connection:
        connection.execute(text("CREATE EXTENSION IF NOT EXISTS vector"))

    def opened(name, model):
        return langchain_postgres.PGVectorStore.create_sync(pages, Model(model), name)

    for name in ("v1", "v2"):
        pages.init_vectorstore_table(f"kb_{name}", vector_size=SIZE)
        texts = [one.page_content for one in documents(name)]
        opened(f"kb_{name}", name).add_texts(texts)
        view(version(name, table=f"kb_{name}"))
        reader = opened("kb", name)
        assert reader.similarity_search(question(3), k=1)[0].page_content == texts[3]
        reader.add_texts([f"Page 99 as of {name}."])
        assert len(opened(f"kb_{name}", name).similarity_search(question(99), k=50)) == 13
    view.engine.dispose()


def test_a_table_that_is_missing_or_has_other_columns_is_refused(engine):
    table(engine, "kb_v1")
    table(engine, "kb_v2", column="body")
    view = PostgresView(engine, "kb")
    view(version("v1", table="kb_v1"))
    with pytest.raises(AliasError, match="other columns than the view 'kb'"):
        view(version("v2", table="kb_v2"))
    with pytest.raises(AliasError, match="kb_v3"):
        view(version("v3", table="kb_v3"))
    with pytest.raises(AliasError, match="has no 'table'"):
        view(version("v3"))
    assert view.current() == "kb_v1"
    assert set(content(engine)) == {"kb_v1"}


def test_a_view_does_not_take_the_place_of_a_table(engine):
    table(engine, "kb")
    table(engine, "kb_v1")
    with pytest.raises(AliasError, match="'kb' is a table"):
        PostgresView(engine, "kb")(version("v1", table="kb_v1"))
    assert content(engine) == ["kb"] * 12


@pytest.mark.parametrize("name", ['a"b', "Größe", "a; DROP TABLE kb_v1", "a:b", "a%b", "a\\:b"])
def test_names_are_quoted(engine, name):
    table(engine, "kb_v1")
    with engine.begin() as connection:
        # By the server, so that our own quoting is not its own witness.
        made = text("SELECT format('CREATE VIEW %I AS SELECT * FROM kb_v1', CAST(:n AS text))")
        statement = connection.execute(made, {"n": f"{name}!"}).scalar_one()
        connection.exec_driver_sql(statement.replace("%", "%%"))
    view = PostgresView(engine, name)
    view(version("v1", table=f"{name}!"))
    assert view.current() == f"{name}!"
    assert set(content(engine, "kb_v1")) == {"kb_v1"}


def test_a_schema_and_a_url_can_be_given(engine, postgres_url):
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA shelf"))
        connection.execute(text("CREATE TABLE shelf.kb_v1 AS SELECT 'v1' AS text"))
    view = PostgresView(postgres_url, "kb", lambda of: f"kb_{of.version}", schema="shelf")
    view(version("v1"))
    assert (view.current(), PostgresView(engine, "kb").current()) == ("kb_v1", None)
    view.engine.dispose()


def test_hooks_of_many_processes_do_not_fail_each_other(engine):
    for name in ("kb_v1", "kb_v2"):
        table(engine, name)
    view = PostgresView(engine, "kb")
    view(version("v1", table="kb_v1"))
    wrong = []

    def move(name):
        for _ in range(20):
            try:
                view(version(name, table=f"kb_{name}"))
            except AliasError as error:
                wrong.append(error)

    threads = [threading.Thread(target=move, args=(name,)) for name in ("v1", "v2") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert view.current() in ("kb_v1", "kb_v2")


def test_an_alias_needs_a_name(engine):
    for made in (lambda: PostgresView(engine, " "), lambda: QdrantAlias(None, "")):
        with pytest.raises(ValueError, match="needs a name"):
            made()
