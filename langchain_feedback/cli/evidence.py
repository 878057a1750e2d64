"""Beside the demo's answers: where they would have been."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

__all__ = ["show_evidence"]


def show_evidence(
    console: Console, evidence: Sequence[str], grades: Sequence[Mapping[str, Any]]
) -> None:
    """Print which chunks hold the answer, and what became of each."""
    verdicts = {grade["chunk_id"]: grade["verdict"] for grade in grades}
    fates = {"yes": "kept", "unknown": "kept", "no": "dropped", None: "not found"}
    parts = [f"{chunk} ({fates[verdicts.get(chunk)]})" for chunk in evidence]
    missed = any(verdicts.get(chunk) in ("no", None) for chunk in evidence)
    style = "yellow" if missed else "green"
    console.print(Text(f"  the answer stands in: {', '.join(parts)}", style))
