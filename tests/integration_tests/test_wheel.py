"""The wheel that `pip` builds works where nothing but itself was installed, extra by extra.

`make wheel` runs these; a plain `pytest` leaves them out, since they install packages from the
registry. The base environment holds the wheel without extras. Each extra gets an environment of
its own that sees the base one, so that no extra lives on the packages of another (but for
`cli` and `demo`, which are made of others).
"""

import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.openai_server import OpenAIServer, Text

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[2]
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")
PINNED = ("--constraint", str(ROOT / "constraints.txt"))


@dataclass(frozen=True)
class Environment:
    """A virtual environment that programs run in, far from the source."""

    folder: Path

    @cached_property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @cached_property
    def packages(self) -> Path:
        return next((self.folder / "lib").glob("python*/site-packages"))

    def start(self, *command: object, **variables: str) -> subprocess.CompletedProcess[str]:
        hidden = ("PYTHONPATH", "PYTHONWARNINGS", "OPENAI_", "LANGSMITH_", "LANGCHAIN_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        return subprocess.run(
            [self.python, *map(str, command)],
            cwd=self.folder,
            env=kept | variables,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def run(self, *command: object, **variables: str) -> str:
        done = self.start(*command, **variables)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def program(self, program: str, *options: str, **variables: str) -> list[str]:
        return self.run(*options, "-c", dedent(program), **variables).splitlines()

    def fails(self, program: str) -> str:
        done = self.start("-c", dedent(program))
        assert done.returncode != 0, done.stdout
        return done.stderr.splitlines()[-1]

    def install(self, *what: object) -> None:
        self.run(*PIP, "install", *PINNED, *what)


def made(folder: Path, *seen: Environment, pip: bool = False) -> Environment:
    """Make an environment that sees the packages of others, too."""
    command = [sys.executable, "-m", "venv", *(() if pip else ("--without-pip",)), str(folder)]
    subprocess.run(command, check=True)
    environment = Environment(folder)
    lines = "".join(f"{other.packages}\n" for other in seen)
    (environment.packages / "seen.pth").write_text(lines)
    return environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, cwd=folder)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = made(tmp_path_factory.mktemp("base") / "env", pip=True)
    environment.install(wheel)
    return environment


@pytest.fixture(scope="module")
def extra(wheel: Path, base: Environment, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the environment of an extra, made on first use."""
    ready: dict[str, Environment] = {}

    def of(name: str, *seen: str) -> Environment:
        if name not in ready:
            others = [of(other) for other in seen]
            ready[name] = made(tmp_path_factory.mktemp(name) / "env", *others, base)
            # First the wheel itself, for its command; the base's copy would stand for it.
            ready[name].install("--force-reinstall", "--no-deps", wheel)
            ready[name].install(f"{wheel}[{name}]")
        return ready[name]

    return of


# -- what is in it


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata_of(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode())


def test_it_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    package = ROOT / "langchain_feedback"
    ours = {
        str(path.relative_to(ROOT))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    inside = names_in(wheel)
    assert {name for name in inside if ".dist-info/" not in name} == ours
    assert "langchain_feedback/py.typed" in inside
    assert "langchain_feedback/demo/data/handbook.jsonl" in inside
    assert any(re.search(r"store/migrations/m0001_\w+\.py$", name) for name in inside)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in inside)


def test_all_is_every_other_extra_and_the_readme_is_its_description(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    by_extra: dict[str, set[str]] = {}
    for line in metadata.get_all("Requires-Dist"):
        need, _, marker = line.partition("; extra == ")
        by_extra.setdefault(marker.strip("'"), set()).add(need)
    everything, needed = by_extra.pop("all"), by_extra.pop("")
    assert set(metadata.get_all("Provides-Extra")) == {*by_extra, "all"}
    assert by_extra.pop("train")  # a gigabyte of PyTorch, which nobody wants by accident
    assert everything == set().union(*by_extra.values())
    assert not any("langchain-community" in need for need in needed)
    assert metadata.get_payload() == (ROOT / "README.md").read_text()


# -- without extras

MODEL = """
import json
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda

class Model(BaseChatModel):
    _llm_type = "fake"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        data = str(messages[-1].content)
        slots = [line[5:] for line in data.splitlines() if line.startswith("Slot ")]
        text = "A refund takes 14 days."
        if "grade" in str(messages[0].content).lower():
            grades = [{"slot": slot, "reason": "it fits", "relevant": True} for slot in slots]
            text = json.dumps({"grades": grades})
        elif "claim" in str(messages[0].content).lower():
            quotes = [{"slot": slots[0], "quote": "refund takes 14 days"}]
            claim = {"claim": text, "kind": "fact", "computed": [], "reason": "it is there"}
            text = json.dumps({"claims": [claim | {"quotes": quotes, "supported": True}]})
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])

chunks = [
    Document("Refunds go to the card that paid.", id="card"),
    Document("A refund takes 14 days.", id="days"),
]
base = RunnableLambda(lambda question: chunks)
question = "How long does a refund take?"
"""


def test_importing_everything_warns_of_nothing(base: Environment) -> None:
    program = """
        import langchain_feedback
        from langchain_feedback import *
        for name in langchain_feedback.__all__:
            getattr(langchain_feedback, name)
        import langchain_feedback.quotes.render, langchain_feedback.judges.first_stage
        import langchain_feedback.judges.offline, langchain_feedback.judges.staging
        print(langchain_feedback.__file__)
    """
    [where] = base.program(program, "-W", "error")
    assert Path(where).is_relative_to(base.packages)


def test_no_package_of_an_extra_is_there(base: Environment) -> None:
    names = "langchain_openai faiss langchain_community psycopg matplotlib langchain sklearn typer"
    program = f"""
        from importlib.util import find_spec
        print(*[name for name in {names.split()} if find_spec(name)])
    """
    assert base.program(program) == [""]


def test_a_graph_answers_with_a_model(base: Environment) -> None:
    program = """
        from langchain_feedback import create_reliable_rag
        graph = create_reliable_rag(base, Model())
        result = graph.invoke({"question": question})
        print(result["status"], result["answer"])
        print(result["citations"][0]["quote"], result["citations"][0]["verified"])
    """
    assert base.program(MODEL + dedent(program), "-W", "error") == [
        "answered A refund takes 14 days.",
        "refund takes 14 days True",
    ]


def test_a_retriever_learns_on_sqlite(base: Environment) -> None:
    program = """
        from langchain_feedback import FeedbackRetriever, FeedbackStore, trace_id_of
        for run in range(2):
            with FeedbackStore("sqlite:///feedback.db") as store:
                retriever = FeedbackRetriever(base_retriever=base, store=store, k=2)
                found = retriever.invoke(question, {"metadata": {"user_id": "ann"}})
                print(*[chunk.id for chunk in found])
                store.rate(trace_id_of(found), 5, target=found[1])
                store.rate(trace_id_of(found), 1, target=found[0])
    """
    assert base.program(MODEL + dedent(program), "-W", "error") == ["card days", "days card"]


def test_an_index_is_written_gated_and_checked_on_sqlite(base: Environment) -> None:
    program = """
        from langchain_core.embeddings import DeterministicFakeEmbedding
        from langchain_core.vectorstores import InMemoryVectorStore
        from langchain_feedback import FeedbackStore
        from langchain_feedback.index.health import check_health
        from langchain_feedback.index.managed import ManagedIndex
        store = FeedbackStore("sqlite:///index.db")
        vectors = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
        index = ManagedIndex(vector_store=vectors, documents=lambda: chunks)
        junk = Document("Home | Search | Login | Help", id="bar")
        kept, dropped = index.gate(store).split([*chunks, junk])
        index.catalog(store).sync(kept, complete=True)
        writer = index.writer(store)
        writer.apply(writer.plan(kept))
        report = check_health(store, index)
        print(*dropped[0][1], writer.plan(kept).counts["keep"], report.exit_code)
    """
    printed = base.program(MODEL + dedent(program), "-W", "error")
    assert printed == ["navigation no_statement 2 0"]


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("import langchain_feedback.integrations.agents", "agents"),
        ("from langchain_feedback.local import read_folder; read_folder('.')", "local"),
        ("from langchain_feedback.cli.main import run; run()", "cli"),
        (
            "import langchain_feedback as lf; lf.FeedbackStore('postgresql+psycopg://localhost/feedback').setup()",
            "postgres",
        ),
        (
            (
                "from langchain_feedback.index.duplicates import Chunk, near_duplicates;"
                "near_duplicates([Chunk('1', 'One text.'), Chunk('2', 'And another.')])"
            ),
            "care",
        ),
        (
            (
                "from langchain_feedback import FeedbackStore;"
                "from langchain_feedback.store.warehouse import export_parquet;"
                "export_parquet(FeedbackStore('sqlite://'), 'out')"
            ),
            "warehouse",
        ),
    ],
)
def test_what_lacks_an_extra_says_which(base: Environment, program: str, name: str) -> None:
    assert f'pip install "langchain-feedback[{name}]"' in base.fails(program)


# -- each extra


def test_openai(extra: Any) -> None:
    program = """
        from langchain_openai import ChatOpenAI
        from langchain_feedback import create_reliable_rag, nodes
        create_reliable_rag(base, ChatOpenAI(model="gpt-4o-mini"))
        generate = nodes.generate(ChatOpenAI(model="gpt-4o-mini"))
        print(generate.invoke({"question": question, "kept": chunks})["draft"])
    """
    with OpenAIServer(lambda request: Text("It takes 14 days.")) as server:
        variables = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "test"}
        printed = extra("openai").program(MODEL + dedent(program), **variables)
    assert printed == ["It takes 14 days."]


def test_server(extra: Any) -> None:
    program = """
        from starlette.testclient import TestClient
        from langchain_feedback import FeedbackStore
        from langchain_feedback.server.app import create_app
        here = {"base_url": "http://127.0.0.1", "client": ("127.0.0.1", 5000)}
        client = TestClient(create_app(FeedbackStore("sqlite://")), **here)
        client.post("/login", data={"name": "Ann"})
        print(client.get("/queue").status_code, client.get("/static/style.css").status_code)
    """
    assert extra("server").program(dedent(program)) == ["200 200"]


def test_telemetry(extra: Any) -> None:
    program = """
        import prometheus_client
        from langchain_feedback import FeedbackStore
        from langchain_feedback.integrations.telemetry import instrument
        store = instrument(FeedbackStore("sqlite://"))
        store.record_trace("t", "How long?", [])
        print(len(store.rate("t", 5)) > 0)
    """
    assert extra("telemetry").program(dedent(program)) == ["True"]


def test_care(extra: Any) -> None:
    program = """
        from langchain_feedback.index.duplicates import Chunk, near_duplicates
        text = " ".join(f"Sentence {number} of the terms says one thing." for number in range(40))
        pair = [Chunk("1", text + " Thank you."), Chunk("2", text + " Thank you for it.")]
        found = near_duplicates(pair)
        print(*[(one.id, one.of) for one in found])
    """
    assert extra("care").program(dedent(program), "-W", "error") == ["('2', '1')"]


def test_warehouse(extra: Any) -> None:
    program = """
        from langchain_feedback import FeedbackStore
        from langchain_feedback.store.warehouse import export_parquet, rebuild_evidence_with_duckdb
        store = FeedbackStore("sqlite://")
        store.record_trace("t", "How long?", chunks)
        store.rate("t", 5, target=chunks[0])
        exported = export_parquet(store, "history")
        evidence = rebuild_evidence_with_duckdb("history")
        print(exported.signals, evidence.column("positive").to_pylist())
    """
    assert extra("warehouse").program(MODEL + dedent(program)) == ["1 [1.0]"]


def test_faiss(extra: Any) -> None:
    program = """
        from langchain_core.embeddings import DeterministicFakeEmbedding
        from langchain_community.vectorstores import FAISS
        from langchain_feedback import DartboardRetriever
        store = FAISS.from_documents(chunks + chunks[:1], DeterministicFakeEmbedding(size=32))
        found = DartboardRetriever(vector_store=store, k=2).invoke(question)
        print(*sorted(chunk.page_content for chunk in found))
    """
    assert extra("faiss").program(MODEL.replace('id="', 'title="') + dedent(program)) == [
        "A refund takes 14 days. Refunds go to the card that paid."
    ]


def test_postgres(extra: Any, postgres_url: str) -> None:
    program = f"""
        from langchain_feedback import FeedbackRetriever, FeedbackStore, trace_id_of
        with FeedbackStore({postgres_url!r}) as store:
            retriever = FeedbackRetriever(base_retriever=base, store=store, k=2)
            found = retriever.invoke(question, {{"metadata": {{"user_id": "ann"}}}})
            store.rate(trace_id_of(found), 5, target=found[1])
            store.rate(trace_id_of(found), 1, target=found[0])
            print(*[chunk.id for chunk in retriever.invoke(question)])
    """
    assert extra("postgres").program(MODEL + dedent(program), "-W", "error") == ["days card"]


def test_agents(extra: Any) -> None:
    program = """
        from langchain_feedback.integrations.agents import (
            GroundedAnswerMiddleware, create_feedback_retriever_tool, grounding_of,
        )
        from langchain.agents import create_agent
        from langchain_core.language_models import GenericFakeChatModel

        class Scripted(GenericFakeChatModel):
            def bind_tools(self, tools, **options):
                return self

        call = {"name": "search", "args": {"query": question}, "id": "1"}
        replies = [AIMessage("", tool_calls=[call]), "A refund takes 14 days."]
        search = create_feedback_retriever_tool(base, "search", "Searches.")
        middleware = [GroundedAnswerMiddleware("offline")]
        agent = create_agent(Scripted(messages=iter(replies)), [search], middleware=middleware)
        answer = agent.invoke({"messages": [("user", question)]})["messages"][-1]
        print(grounding_of(answer)["status"], answer.text)
    """
    printed = extra("agents").program(MODEL + dedent(program), "-W", "error")
    assert printed == ["answered A refund takes 14 days."]


def test_local(extra: Any) -> None:
    environment = extra("local")
    (environment.folder / "files").mkdir()
    (environment.folder / "files" / "faq.md").write_text("# Refunds\n\nA refund takes 14 days.\n")
    (environment.folder / "files" / "keys.html").write_text("<p>Keys rotate each quarter.</p>")
    program = """
        from langchain_feedback import create_reliable_rag
        from langchain_feedback.local import TfidfRetriever, read_folder, split_sections
        sections = read_folder("files").sections
        retriever = TfidfRetriever.from_documents(split_sections(sections), k=1)
        graph = create_reliable_rag(retriever, "offline")
        result = graph.invoke({"question": "How long does a refund take?"})
        print(result["citations"][0]["source"], "14 days" in result["answer"])
    """
    assert environment.program(program, "-W", "error") == ["faq.md > Refunds True"]


def test_plot(extra: Any) -> None:
    program = """
        import langchain_feedback.demo.flywheel_plot
        import matplotlib
        print(matplotlib.get_backend() != "")
    """
    assert extra("plot").program(program) == ["True"]


def test_cli(extra: Any) -> None:
    environment = extra("cli", "local")
    command = environment.folder / "bin" / "langchain-feedback"
    folder = environment.folder / "files"
    folder.mkdir()
    (folder / "faq.txt").write_text("A refund takes 14 days.\n")
    asked = environment.run(command, "ask", "How long does a refund take?", "--docs", folder)
    assert "A refund takes 14 days." in asked
    assert "handbook" in environment.run(command, "demo").lower()


def test_demo(extra: Any) -> None:
    environment = extra("demo", "cli", "plot")
    command = environment.folder / "bin" / "langchain-feedback"
    plot = environment.folder / "flywheel.png"
    environment.run(command, "demo", "--flywheel", "--plot", plot)
    assert plot.read_bytes().startswith(b"\x89PNG")
