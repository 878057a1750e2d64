"""A scripted agent: a model that calls tools, a judge that reads its drafts, real tools."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from langchain_feedback.integrations.agents import (
    GroundedAnswerMiddleware,
    create_feedback_retriever_tool,
)
from tests.fakes import (
    Asked,
    FakeChatModel,
    ListRetriever,
    StreamingFakeChatModel,
    claims,
    replies,
)

QUESTION = "How long does a refund take?"
ANSWER = "Refunds take 14 days."
REJECTED = "REJECTED-DRAFT: it takes 41 days."
INTERNAL = "INTERNAL-YES"
REFUNDS = Document(ANSWER, id="refunds", metadata={"source": "faq.md"})
LAPTOPS = Document("Laptops may be kept for 3 years.", id="laptops", metadata={"source": "it.md"})
ASKED = {"messages": [("user", QUESTION)]}


class AgentModel(FakeChatModel):
    """Says what the script says, turn by turn, whatever its tools are."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


class StreamingAgentModel(StreamingFakeChatModel):
    """The same in tokens."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


KINDS = {"whole": AgentModel, "tokens": StreamingAgentModel}


def calls(*queries: str, name: str = "search", text: str = "") -> AIMessage:
    """Make a message that searches, in parallel where there are several queries."""
    made = [{"name": name, "args": {"query": query}, "id": f"{name}-{query}"} for query in queries]
    return AIMessage(text, tool_calls=made)


def says(*script: Any, kind: str = "whole") -> Any:
    """Make the agent's model: it gives these replies in order, then the last one for ever."""

    def reply(asked: Asked) -> Any:
        said = script[min(asked.index, len(script) - 1)]
        return said.model_copy(deep=True) if isinstance(said, AIMessage) else said

    return KINDS[kind](reply=reply)


def judge(**by_role: Any) -> FakeChatModel:
    """Make a judge that proves a draft by its own words, and rejects what holds REJECTED."""

    def verify(asked: Asked) -> Any:
        bad = "REJECTED" in asked.answer
        found = claims(asked.answer, asked.slots[0], asked.answer, supported=not bad)
        found["claims"][0]["reason"] = f"{INTERNAL}, as quoted"
        return found

    return FakeChatModel(reply=replies(**{"verify": verify, **by_role}))


def search_tool(*documents: Document, name: str = "search", **options: Any) -> Any:
    retriever = ListRetriever(documents=list(documents))
    return create_feedback_retriever_tool(retriever, name, "Searches the FAQ.", **options)


def agent(
    model: Any,
    verifier: Any = None,
    *,
    tools: Any = None,
    before: Any = (),
    after: Any = (),
    agent_options: Any = None,
    **options: Any,
) -> Any:
    """Make an agent that searches one document, and answers only from it."""
    middleware = GroundedAnswerMiddleware(verifier or judge(), **options)
    return create_agent(
        model,
        tools if tools is not None else [search_tool(REFUNDS)],
        middleware=[*before, middleware, *after],
        **(agent_options or {}),
    )


@tool
def clock() -> str:
    """Tell the time."""
    return "It is noon."


async def run(graph: Any, mode: str, asked: Any = None, config: Any = None) -> Any:
    """Run an agent to its end, sync or async."""
    asked = asked or ASKED
    return graph.invoke(asked, config) if mode == "sync" else await graph.ainvoke(asked, config)
