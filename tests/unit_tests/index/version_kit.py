"""Two builds of one index whose embedders differ and whose vectors are of equal size.

    python -m tests.unit_tests.index.version_kit URL FOLDER

is a process that asks until its stdin closes, and then tells what it got, as JSON.
"""

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_feedback import FeedbackRetriever
from langchain_feedback.index.swappable import SwappableRetriever
from langchain_feedback.index.versions import IndexRegistry, IndexVersion
from langchain_feedback.store.feedback_store import FeedbackStore

__all__ = [
    "PAGES",
    "Model",
    "Reader",
    "as_before",
    "build",
    "documents",
    "follow",
    "one_page",
    "opener",
    "prepared",
    "promote",
    "question",
    "rated",
    "states",
]

SIZE = 16
PAGES = 12


class Model(Embeddings):
    """An embedder that knows texts by their first word but one; another name, another model."""

    def __init__(self, model: str, size: int = SIZE, noise: float = 0.0) -> None:
        self.model, self.size, self.noise, self.asked = model, size, noise, 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.asked += 1
        topic = " ".join(text.split()[:2])
        digest = hashlib.sha256(f"{self.model}:{topic}".encode()).digest()
        chance = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        vector = chance.normal(size=self.size)
        if self.noise:
            vector = vector + np.random.default_rng(self.asked).normal(size=self.size) * self.noise
        return [float(number) for number in vector]


def question(page: int) -> str:
    """Return a question whose vector is that of a page's text, with the right embedder."""
    return f"Page {page} says what?"


def documents(version: str, pages: Iterable[int] = range(PAGES)) -> list[Document]:
    """Return the pages as a version has them."""
    return [
        Document(
            f"Page {page} as of {version}.",
            id=f"{version}-{page}",
            metadata={"source": f"{page}.md"},
        )
        for page in pages
    ]


def build(folder: Path, version: str, pages: Iterable[Document] | None = None) -> dict[str, Any]:
    """Put a version on the disk, and return its locator."""
    index = InMemoryVectorStore(Model(version))
    index.add_documents(list(documents(version) if pages is None else pages))
    path = folder / f"{version}.json"
    index.dump(str(path))
    return {"path": str(path), "model": version}


def opener(store: FeedbackStore | None = None, k: int = 3):
    """Return what opens a version; with a store, one that learns."""

    def open_version(version: IndexVersion) -> Any:
        locator = version.locator
        index = InMemoryVectorStore.load(locator["path"], Model(locator["model"]))
        base = index.as_retriever(search_kwargs={"k": k})
        if store is None:
            return base
        return FeedbackRetriever(
            base_retriever=base, store=store, k=k, fetch_k=k, resolve=index.get_by_ids
        )

    return open_version


def promote(registry: IndexRegistry, folder: Path, version: str, **options: Any) -> IndexVersion:
    """Build, register and check a version."""
    registry.register(version, Model(version), locator=build(folder, version))
    given = {"open_version": opener(), "chunk_count": PAGES} | options
    return registry.ready(version, **given)


def prepared(store: FeedbackStore, folder: Path, *names: str) -> IndexRegistry:
    """Return a registry with versions that are ready, the first one active."""
    registry = IndexRegistry(store)
    for name in names:
        promote(registry, folder, name)
    registry.activate(names[0], expected=None)
    return registry


def follow(registry: IndexRegistry, *, check_every: float = 0.0, learns: bool = False, **given):
    """Return a retriever over a registry."""
    store = registry.store if learns else None
    options = {"open_version": opener(store), "store": store, "check_every": check_every}
    return SwappableRetriever(registry=registry, **options | given)


def rated(store, version, pages, rating=5, **given):
    """Let somebody say of some pages that they answer their questions."""
    for page in pages:
        [one] = documents(version, [page])
        store.record_trace(f"t{version}-{page}-{rating}", question(page), [one], **given)
        store.rate(f"t{version}-{page}-{rating}", rating, target=one, actor="ann")


def as_before(pages=range(PAGES)):
    """Return a second version whose texts are those of the first."""
    return [one.model_copy(update={"id": f"new-{one.id}"}) for one in documents("v1", pages)]


def one_page(_):
    return RunnableLambda(lambda _: [Document("A page.")])


def states(registry):
    return {one.version: one.status for one in registry.versions()}


class Reader:
    """Asks questions, and counts what is wrong with the answers."""

    def __init__(self, live: SwappableRetriever) -> None:
        self.live, self.asked = live, 0
        self.versions: set[str] = set()
        self.wrong: list[str] = []

    def ask(self) -> None:
        page = self.asked % PAGES
        self.asked += 1
        try:
            found = self.live.invoke(question(page))
        except Exception as error:  # noqa: BLE001  counted
            self.wrong.append(repr(error))
            return
        texts = {one.page_content.split()[-1].rstrip(".") for one in found}
        marks = {one.metadata["feedback"]["index_version"] for one in found}
        self.versions |= marks
        if len(found) != 3 or len(marks) != 1 or texts != marks:
            self.wrong.append(f"versions {texts} marked as {marks}")
        # The nearest one is the page itself only with the embedder of the version.
        elif not found[0].page_content.startswith(f"Page {page} "):
            self.wrong.append(f"page {page}: {found[0].page_content}")


def main(url: str, folder: str) -> None:
    """Ask until stdin closes."""
    del folder
    with FeedbackStore(url, timeout_s=20) as store:
        reader = Reader(follow(IndexRegistry(store), check_every=0.01, learns=True))
        reader.ask()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while sys.stdin.readline():
            reader.ask()
            sys.stdout.write("more\n")
            sys.stdout.flush()
    told = {"asked": reader.asked, "versions": sorted(reader.versions), "wrong": reader.wrong[:5]}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
