"""Keep what is nobody's answer yet out of a graph's streams."""

from typing import TYPE_CHECKING, Any, TypeVar

from langchain_feedback.nodes.keys import HELD_BACK, StateKeys

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

__all__ = ["hold_back_drafts"]

GraphT = TypeVar("GraphT", bound="Pregel[Any, Any, Any, Any]")


def hold_back_drafts(graph: GraphT, keys: StateKeys | None = None) -> GraphT:
    """Keep drafts, and what was found wrong with them, out of a compiled graph's streams.

    `values`, `updates`, `checkpoints` and `get_state` then show every key but those.
    Checkpoints in your database hold them all the same: a run that is resumed needs them.

    Args:
        graph: A compiled graph; it is changed and returned.
        keys: Your graph's names of the keys.

    Example:
        >>> from langgraph.graph import START, MessagesState, StateGraph
        >>> from langchain_feedback import nodes
        >>> from langchain_feedback.judges.offline import ExtractiveGenerator
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node(nodes.generate(ExtractiveGenerator()))
        >>> graph = hold_back_drafts(builder.add_edge(START, "generate").compile())
        >>> list(graph.stream({"messages": [("user", "?")]}, stream_mode="updates"))
        [{'generate': {'generations': 1, 'status': ''}}]
    """
    names = (keys or StateKeys()).names()
    held_back = {names[key] for key in HELD_BACK}
    graph.stream_channels = [name for name in graph.stream_channels_list if name not in held_back]
    return graph
