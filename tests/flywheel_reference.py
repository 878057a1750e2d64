"""The classic rule, in twenty lines of plain Python that know nothing of the library.

A chunk's score is its mean rating over 3, and 1 while it has none. The answer is the first two
candidates by score, equal scores in base order. Events are numbered from 1; 0 is "never".
"""

from collections.abc import Sequence


def flywheel(
    candidates: Sequence[Sequence[str]], evidence: Sequence[set[str]], signal: str, events: int
) -> dict[str, object]:
    """Ask the questions in turn, rate each answer, and say where that led."""
    ratings: list[dict[str, list[int]]] = [{chunk: [] for chunk in pool} for pool in candidates]
    wrong, order_change, score_change = [0] * len(candidates), 0, 0

    def scores(at: int) -> dict[str, float]:
        return {chunk: sum(r) / len(r) / 3 if r else 1.0 for chunk, r in ratings[at].items()}

    def order(at: int) -> list[str]:
        return sorted(candidates[at], key=lambda chunk: -scores(at)[chunk])

    for event in range(1, events + 1):
        at = (event - 1) % len(candidates)
        answer, old_order, old_scores = order(at)[:2], order(at), scores(at)
        wrong[at] += not evidence[at] <= set(answer)
        for chunk in answer:
            liked = evidence[at] <= set(answer) if signal == "thumbs" else chunk in evidence[at]
            ratings[at][chunk].append(5 if liked else 1)
        order_change = event if order(at) != old_order else order_change
        score_change = event if scores(at) != old_scores else score_change
    orders = [order(at) for at in range(len(candidates))]
    recall = [len(e & set(o[:2])) / len(e) for e, o in zip(evidence, orders, strict=True)]
    return {
        "orders": orders,
        "scores": [scores(at) for at in range(len(candidates))],
        "recall": recall,
        "wrong": wrong,
        "last_order_change_event": order_change,
        "last_score_change_event": score_change,
    }
