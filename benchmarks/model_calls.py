"""How many chat-model calls, and how long prompts, one checked answer takes.

Real runs with a stand-in model that answers well, counted by a LangChain callback; the
replay of the finished answer (tagged `answer`) calls no model and is left out. Three ways,
with k chunks of about 900 characters:

- recipe: the well-known pipeline, written here from its description with short prompts
  of our own: grade each chunk in a call, generate, check the answer in a call, highlight
  in a call. k + 3 calls, k + 2 of them checks.
- each: this pack's graph with `LLMDocumentGrader(model, mode="each")`: k + 2 calls.
- default: this pack's graph as it comes: ceil(k / 8) + 2 calls.

Prompt tokens are estimated as characters / 4 of all messages sent. Not counted: tool and
JSON schemas that a provider adds, the replies, and what your retries and rewrites add; a
verifying reply is longer than a yes or no.

Stated, not run: feedback re-ranking. The recipe asks a model once for each chunk and
stored record: k x records calls a query. This pack asks none.

    python benchmarks/model_calls.py [--json] [--k 4 8 20] [--records 1000]
"""

import argparse
import json
import re
import sys
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from langchain_feedback import LLMDocumentGrader, create_reliable_rag
from langchain_feedback.judges import prompts
from langchain_feedback.nodes.publishing import ANSWER_TAG

QUESTION = "How long does a refund take?"
ANSWER = "Refunds are paid within 14 days of the return."
FILLER = "The desk is open on working days and keeps a record of each return that it was sent. "
WAYS = ("recipe", "each", "default")


class Counter(BaseCallbackHandler):
    """Counts the calls of chat models and the characters of their prompts."""

    def __init__(self) -> None:
        self.calls = self.characters = 0

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002
        messages: list[list[BaseMessage]],
        *,
        tags: list[str] | None = None,
        **_: Any,
    ) -> None:
        """Count one call, unless it is the replay of the finished answer."""
        if ANSWER_TAG in (tags or []):
            return
        self.calls += 1
        self.characters += sum(len(message.text) for prompt in messages for message in prompt)


class StandIn(BaseChatModel):
    """Replies as a good model would."""

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        reply = AIMessage(_reply(messages[0].text, messages[-1].text))
        return ChatResult(generations=[ChatGeneration(message=reply)])


def _reply(asked: str, data: str) -> str:
    slots = re.findall(r"^Slot (\S+)$", data, re.MULTILINE)
    if asked == prompts.GRADE_DOCUMENTS:
        grades = [{"slot": slot, "reason": "it fits", "relevant": True} for slot in slots]
        return json.dumps({"grades": grades})
    if asked == prompts.GRADE_DOCUMENT:
        return json.dumps({"reason": "it fits", "relevant": True})
    if asked == prompts.VERIFY_ANSWER:
        quotes = [{"slot": slots[0], "quote": ANSWER}]
        claim = {"claim": ANSWER, "kind": "fact", "quotes": quotes, "computed": []}
        return json.dumps({"claims": [claim | {"reason": "as quoted", "supported": True}]})
    return "yes" if asked in (GRADE, CHECK) else ANSWER


# -- the recipe's pipeline

GRADE = (
    "You assess whether a retrieved document is relevant to a question. If it contains words "
    "or meaning related to the question, grade it as relevant. The aim is to filter out wrong "
    "retrievals. Give a binary score, 'yes' or 'no'."
)
GENERATE = (
    "You answer questions from the retrieved documents. If you do not know the answer, say so. "
    "Use five sentences at most and keep it concise."
)
CHECK = (
    "You assess whether an answer is grounded in a set of retrieved facts. Give a binary score, "
    "'yes' or 'no'; 'yes' means that the answer is supported by the facts."
)
HIGHLIGHT = (
    "You receive a question, an answer to it, and the documents it was made from. Find the "
    "passages of the documents that the answer directly uses. Give for each the document's id, "
    "title and source and the passage itself, word for word as it stands in the document."
)


def _step(model: BaseChatModel, instructions: str, data: str) -> Runnable[dict[str, str], Any]:
    return ChatPromptTemplate([("system", instructions), ("human", data)]) | model


def recipe(model: BaseChatModel, documents: list[Document]) -> Runnable[Any, Any]:
    """Make the pipeline: grade each chunk, generate, check, highlight."""
    grade = _step(model, GRADE, "Retrieved document:\n{document}\n\nQuestion: {question}")
    generate = _step(model, GENERATE, "Documents:\n{documents}\n\nQuestion: {question}")
    check = _step(model, CHECK, "Facts:\n{documents}\n\nAnswer: {answer}")
    highlight = _step(
        model, HIGHLIGHT, "Documents:\n{documents}\n\nQuestion: {question}\n\nAnswer: {answer}"
    )

    def answer(inputs: dict[str, str], config: RunnableConfig) -> dict[str, Any]:
        said: dict[str, str] = {"question": inputs["question"]}
        kept = [
            document
            for document in documents
            if grade.invoke(said | {"document": document.page_content}, config).text == "yes"
        ]
        said["documents"] = "\n".join(
            f"<doc{i}>\nContent: {document.page_content}\n</doc{i}>"
            for i, document in enumerate(kept, start=1)
        )
        said["answer"] = generate.invoke(said, config).text
        grounded = check.invoke(said, config).text == "yes"
        highlights = highlight.invoke(said, config).text
        status = "answered" if grounded and highlights else "abstained"
        return {"answer": said["answer"], "status": status}

    return RunnableLambda(answer)


# -- counting


def chunks(k: int) -> list[Document]:
    """Make k chunks of about 900 characters that all hold the answer."""
    return [Document(f"Part {i}. {ANSWER} {FILLER * 10}".strip(), id=str(i)) for i in range(k)]


def measure(way: str, k: int) -> dict[str, int]:
    """Answer one question and count."""
    model, documents, counter = StandIn(), chunks(k), Counter()
    retriever: RunnableLambda[str, list[Document]] = RunnableLambda(lambda _: documents)
    pipelines = {
        "recipe": lambda: recipe(model, documents),
        "each": lambda: create_reliable_rag(
            retriever, model, grader=LLMDocumentGrader(model, mode="each")
        ),
        "default": lambda: create_reliable_rag(retriever, model),
    }
    result = pipelines[way]().invoke({"question": QUESTION}, {"callbacks": [counter]})
    # A way that did not answer would be cheap for the wrong reason.
    assert (result["answer"], result["status"]) == (ANSWER, "answered"), result
    return {
        "calls": counter.calls,
        "checks": counter.calls - 1,
        "prompt_tokens": round(counter.characters / 4),
    }


def main() -> None:
    """Print the table, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--k", type=int, nargs="+", default=[4, 8, 20])
    parser.add_argument("--records", type=int, default=1000)
    options = parser.parse_args()
    if min(options.k) < 1:
        parser.error("--k must be at least 1")
    result: dict[str, Any] = {way: {str(k): measure(way, k) for k in options.k} for way in WAYS}
    reranking = {str(k): k * options.records for k in options.k}
    result["feedback_reranking"] = {
        "formula": "recipe: k * records calls a query; this pack: 0",
        "records": options.records,
        "recipe": reranking,
        "default": dict.fromkeys(reranking, 0),
    }
    result["prompt_tokens"] = "characters / 4"
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        print()
        return
    print("chat-model calls an answer (checks among them), prompt tokens as characters / 4")
    print(f"{'':28}" + "".join(f"{f'k = {k}':>24}" for k in options.k))
    labels = ("the recipe", 'this pack, mode="each"', "this pack, default")
    for way, label in zip(WAYS, labels, strict=True):
        cells = [
            f"{row['calls']:>3} ({row['checks']:>2}) {row['prompt_tokens']:>8,} tok"
            for row in result[way].values()
        ]
        print(f"{label:28}" + "".join(f"{cell:>24}" for cell in cells))
    print(
        f"\nfeedback re-ranking of a query with {options.records:,} stored records (formula: the "
        "recipe calls once for each chunk and record)"
    )
    print(f"{'the recipe':28}" + "".join(f"{calls:>24,}" for calls in reranking.values()))
    print(f"{'this pack':28}" + "".join(f"{0:>24}" for _ in reranking))


if __name__ == "__main__":
    main()
