"""What verification costs before the first token, against streaming the draft at once.

A stand-in model answers as slowly as a hosted one: a pause before its first token,
then tokens one by one, in every call (grade, generate, verify). Timed is
how long a reader waits for the first token that `stream_mode="messages"` shows, and
for the last one. Not measured: your model, whose pauses decide; pass your own figures.

    python benchmarks/first_token.py [--json] [--runs 5] [--pause 0.2] [--tokens-per-second 80]
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableLambda

from langchain_feedback import create_reliable_rag
from langchain_feedback.judges import prompts

ANSWER = " ".join(["Refunds are paid within 14 days of the return."] * 8)
CHUNKS = [Document(f"{ANSWER} Part {i}.", id=str(i)) for i in range(4)]


class PacedModel(BaseChatModel):
    """Replies as a good model would, at a given pace."""

    pause: float
    tokens_per_second: float

    @property
    def _llm_type(self) -> str:
        return "paced"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        text = "".join(str(chunk.message.content) for chunk in self._stream(messages))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])

    def _stream(
        self, messages: list[BaseMessage], run_manager: Any = None, **_: Any
    ) -> Iterator[ChatGenerationChunk]:
        time.sleep(self.pause)
        for word in _reply(messages).split(" "):
            time.sleep(1 / self.tokens_per_second)
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


def _reply(messages: list[BaseMessage]) -> str:
    asked, data = messages[0].content, str(messages[1].content)
    slots = [line[5:] for line in data.splitlines() if line.startswith("Slot ")]
    if asked == prompts.GRADE_DOCUMENTS:
        grades = [{"slot": s, "reason": "it fits", "relevant": True} for s in slots]
        return json.dumps({"grades": grades})
    if asked == prompts.VERIFY_ANSWER:
        claim = {"claim": ANSWER, "kind": "fact", "computed": [], "reason": "it is there"}
        claim |= {"quotes": [{"slot": slots[0], "quote": ANSWER[:46]}], "supported": True}
        return json.dumps({"claims": [claim]})
    return ANSWER


def measure(model: PacedModel, *, stream_drafts: bool) -> tuple[float, float]:
    """Return the seconds until the first and until the last token."""
    graph = create_reliable_rag(
        RunnableLambda(lambda _: CHUNKS), model, stream_drafts=stream_drafts
    )
    started = time.perf_counter()
    times = [
        time.perf_counter() - started
        for _ in graph.stream({"question": "How long is a refund?"}, stream_mode="messages")
    ]
    return times[0], times[-1]


def main() -> None:
    """Run both ways in turn and print the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.2)
    parser.add_argument("--tokens-per-second", type=float, default=80)
    options = parser.parse_args()
    model = PacedModel(pause=options.pause, tokens_per_second=options.tokens_per_second)
    rows: dict[str, list[tuple[float, float]]] = {"verified": [], "drafts": []}
    for _ in range(options.runs):
        rows["verified"].append(measure(model, stream_drafts=False))
        rows["drafts"].append(measure(model, stream_drafts=True))
    result: dict[str, Any] = {
        way: {
            "first_token_s": round(statistics.median(first for first, _ in times), 3),
            "last_token_s": round(statistics.median(last for _, last in times), 3),
        }
        for way, times in rows.items()
    }
    ratios = [v[0] / d[0] for v, d in zip(rows["verified"], rows["drafts"], strict=True)]
    result["first_token_ratio"] = round(statistics.median(ratios), 2)
    result["model"] = {"pause_s": options.pause, "tokens_per_second": options.tokens_per_second}
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        print()
        return
    print(f"{'':24}{'first token':>14}{'last token':>14}")
    for way, label in (("verified", "verified (default)"), ("drafts", "stream_drafts=True")):
        row = result[way]
        print(f"{label:24}{row['first_token_s']:>12.2f} s{row['last_token_s']:>12.2f} s")
    print(f"the verified answer's first token comes {result['first_token_ratio']} times as late")


if __name__ == "__main__":
    main()
