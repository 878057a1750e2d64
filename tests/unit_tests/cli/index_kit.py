"""What the tests of `langchain-feedback index` share: a small site, and its command."""

import json
import shlex
import sys

from langchain_core.documents import Document
from sqlalchemy import select
from typer.testing import CliRunner

from langchain_feedback import FeedbackStore
from langchain_feedback.cli.commands import app
from langchain_feedback.store.schema import metadata
from langchain_feedback.store.transactions import reading

MODULE = "site_of_this_test"
INDEX = f"{MODULE}:index"
JUNK = "Contents"

PUMP = " ".join(f"The warranty of part {at} covers {at + 2} years of use." for at in range(9))

TEXTS = {
    "fee": ("a.md", "The fee is 5 euros for each parcel."),
    "copy": ("b.md", "THE FEE is 5 euros for each  parcel."),
    "days": ("a.md", "A parcel takes 3 days to arrive."),
    "mail": ("b.md", "Write to the office by mail, and wait for 8 days."),
    "pump": ("c.md", PUMP),
    "near": ("d.md", PUMP.replace("years of use", "years of good use", 1)),
    "toc": ("a.md", JUNK),
}

SITE = """
import json
from dataclasses import replace
from pathlib import Path

from faiss import IndexFlatL2
from langchain_community.docstore.in_memory import InMemoryDocstore
from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from langchain_feedback.index.foldback import FoldBack
from langchain_feedback.index.managed import ManagedIndex
from langchain_feedback.index.writer import SavedFolder
from tests.unit_tests.index.version_kit import opener

HERE = Path(__file__).parent
EMBEDDING = DeterministicFakeEmbedding(size=8)
SAVED = SavedFolder(HERE / "faiss")
QUESTIONS = SavedFolder(HERE / "questions")
TOLD = []


def vectors(saved=SAVED):
    folder = saved.current()
    if folder is None:
        return FAISS(EMBEDDING, IndexFlatL2(8), InMemoryDocstore(), {})
    return FAISS.load_local(str(folder), EMBEDDING, allow_dangerous_deserialization=True)


def load():
    for key, (source, text) in json.loads((HERE / "documents.json").read_text()).items():
        yield Document(text, id=key, metadata={"source": source})


def folded(store):
    return FoldBack(store, vector_store=vectors(QUESTIONS), persist=QUESTIONS.save)


def index():
    return ManagedIndex(
        vector_store=vectors(),
        name="site",
        documents=load,
        persist=SAVED.save,
        foldback=folded,
        hooks=[lambda version: TOLD.append(version.version)],
    )


def not_a_list():
    return ManagedIndex(vector_store=vectors(), documents=lambda: None)


def of_strings():
    return ManagedIndex(vector_store=vectors(), documents=lambda: ["a text"])


def tidy():
    return replace(index(), drop_junk=True, drop_copies=True)


def opening():
    return replace(index(), open_version=opener())


def not_an_index():
    return vectors()


def broken():
    raise RuntimeError("no such folder")


def unreadable():
    raise_it = lambda: 1 / 0
    return ManagedIndex(vector_store=vectors(), documents=raise_it)


def empty():
    return ManagedIndex(vector_store=vectors(), documents=lambda: [])


def without_loader():
    return ManagedIndex(vector_store=vectors())
"""


class Site:
    """A folder with an index in FAISS, its documents, and a store; `run` is the command."""

    def __init__(self, folder, url=None):
        self.folder = folder
        self.url = url or f"sqlite:///{folder / 'feedback.db'}"
        (folder / f"{MODULE}.py").write_text(SITE)
        self.write(TEXTS)
        with self.store() as store:
            store.record_trace("t1", "What is the fee?", [document("fee")])

    def store(self):
        return FeedbackStore(self.url)

    def write(self, texts):
        (self.folder / "documents.json").write_text(json.dumps(texts))

    def run(self, *arguments, code=0, index=INDEX):
        """Run a command; return what it printed, of a failure what it said of that."""
        named = ["--index", index] if index else []
        typed = ["index", *arguments, *named]
        result = CliRunner().invoke(app, typed, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.stderr if code == 2 else result.stdout

    def json(self, *arguments, **options):
        return json.loads(self.run(*arguments, "--json", **options))

    def follow(self, printed, code=0):
        """Run the command that the last line names."""
        words = shlex.split(printed.strip().splitlines()[-1])
        assert words[:2] == ["langchain-feedback", "index"]
        return self.run(*words[2:], code=code, index=None)

    def synced(self):
        self.follow(self.run("sync", code=1))
        return self

    def held(self):
        """Return the texts in the saved index, by id."""
        found = sys.modules[MODULE].vectors()
        return {one.id: one.page_content for one in found.get_by_ids(list(TEXTS))}

    def asked(self):
        """Return the ids in the saved index of questions."""
        module = sys.modules[MODULE]
        return set(module.vectors(module.QUESTIONS).index_to_docstore_id.values())

    def module(self):
        return sys.modules.get(MODULE)

    def rows(self, *without):
        """Return everything that the store holds, by table."""
        with self.store() as store, reading(store) as connection:
            return {
                table.name: sorted(map(repr, connection.execute(select(table)).all()))
                for table in metadata.sorted_tables
                if table not in without
            }


def document(key):
    source, text = TEXTS[key]
    return Document(text, id=key, metadata={"source": source})
