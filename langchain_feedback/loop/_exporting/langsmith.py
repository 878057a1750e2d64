"""Reviewed questions as examples of a LangSmith dataset.

An example's id is a digest of the dataset, the namespace and the item, so exporting again
finds what it sent. Reviewers and askers are not named.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, UUID, uuid5

from langchain_feedback.loop._exporting.labels import Labeled

if TYPE_CHECKING:
    from langsmith import Client

__all__ = ["example_of", "send_examples"]

_PAGE = 50
_SPLIT = "dataset_split"
"""The key of an example's metadata in which LangSmith keeps the split."""


def send_examples(
    client: "Client", dataset: str | UUID, namespace: str, questions: Sequence[Labeled]
) -> dict[str, int]:
    """Create what a dataset lacks and update what it holds otherwise; return how many each.

    Args:
        client: LangSmith's.
        dataset: Its id, or a name; one of that name is made if there is none.
        namespace: The store's.
        questions: What to send.

    Raises:
        LangSmithError: If LangSmith cannot be reached or refuses; what arrived before stays.
    """
    dataset_id = _dataset_id(client, dataset)
    counts = {"created": 0, "updated": 0, "unchanged": 0}
    for start in range(0, len(questions), _PAGE):
        page = questions[start : start + _PAGE]
        examples = [example_of(question, namespace, dataset_id) for question in page]
        ids = [example["id"] for example in examples]
        there = {
            str(known.id): known
            for known in client.list_examples(dataset_id=dataset_id, example_ids=ids)
        }
        new = [example for example in examples if example["id"] not in there]
        changed = [
            example
            for example in examples
            if example["id"] in there and not _says_the_same(example, there[example["id"]])
        ]
        if new:
            client.create_examples(dataset_id=dataset_id, examples=new)
        if changed:
            client.update_examples(dataset_id=dataset_id, updates=list(_as_updates(changed)))
        counts["created"] += len(new)
        counts["updated"] += len(changed)
        counts["unchanged"] += len(page) - len(new) - len(changed)
    return counts


def example_of(question: Labeled, namespace: str, dataset_id: UUID) -> dict[str, Any]:
    """Return a question as `client.create_examples` takes it."""
    of = question.of
    right = question.right
    outputs: dict[str, Any] = {
        "right_chunks": [passage.chunk_id for passage in right],
        "contexts": [passage.text for passage in right],
        "none_exists": of.none_exists,
    }
    # The answer that was given is none to learn from: somebody complained about it.
    outputs |= {"answer": of.correction} if of.correction else {}
    metadata = {
        "needs_review": of.needs_review,
        "verdict": of.verdict,
        "failure_class": of.failure_class,
        "item_id": of.item_id,
        "trace_id": of.trace_id,
        "namespace": namespace,
    }
    return {
        "id": str(
            uuid5(NAMESPACE_URL, f"langchain-feedback:{dataset_id}:{namespace}:{of.item_id}")
        ),
        "inputs": {"question": of.question},
        "reference_outputs": outputs,
        "metadata": {key: value for key, value in metadata.items() if value is not None},
        "split": "needs_review" if of.needs_review else "reviewed",
    }


def _dataset_id(client: "Client", dataset: str | UUID) -> UUID:
    from langsmith.utils import LangSmithNotFoundError  # noqa: PLC0415  slow to import

    try:
        return UUID(str(dataset))
    except ValueError:
        pass
    try:
        found = client.read_dataset(dataset_name=str(dataset))
    except LangSmithNotFoundError:
        about = "Reviewed questions of langchain-feedback"
        found = client.create_dataset(str(dataset), description=about)
    return UUID(str(found.id))


def _says_the_same(example: dict[str, Any], known: Any) -> bool:
    metadata = dict(known.metadata or {})
    split = metadata.pop(_SPLIT, [example["split"]])
    return bool(
        known.inputs == example["inputs"]
        and known.outputs == example["reference_outputs"]
        and metadata == example["metadata"]
        and example["split"] in ([split] if isinstance(split, str) else split)
    )


def _as_updates(examples: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for example in examples:
        rest = {key: value for key, value in example.items() if key != "reference_outputs"}
        yield rest | {"outputs": example["reference_outputs"]}
