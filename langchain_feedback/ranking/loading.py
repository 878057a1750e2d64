"""From a stored artifact to a ranker; nothing in an artifact runs."""

from collections.abc import Mapping

from langchain_feedback.errors import ArtifactError
from langchain_feedback.ranking.features import PairScorer, Scorer
from langchain_feedback.ranking.linear import LinearRanker, Ranker

__all__ = ["load_ranker"]


def load_ranker(
    kind: str,
    artifact: str,
    *,
    extra_features: Mapping[str, Scorer | PairScorer] | None = None,
) -> Ranker:
    """Read a ranker.

    Args:
        kind: `linear` or `cross_encoder`.
        artifact: What its `to_json` wrote.
        extra_features: Features of one's own that it was trained with, by name.

    Raises:
        ArtifactError: If it is damaged, of another kind, or needs a feature that is not given.
        MissingExtraError: If a cross-encoder is to be read without the extra `train`.
    """
    try:
        if kind == "linear":
            return LinearRanker.from_json(artifact, extra_features=extra_features)
        if kind == "cross_encoder":
            # It needs PyTorch, a second to import, which the others do without.
            from langchain_feedback.ranking.cross_encoder import (  # noqa: PLC0415
                CrossEncoderRanker,
            )

            return CrossEncoderRanker.from_json(artifact)
    except ValueError as error:
        raise ArtifactError(str(error)) from error
    msg = f"There is no loader for rankers of the kind {kind!r}: pass `load_ranker=`."
    raise ArtifactError(msg)
