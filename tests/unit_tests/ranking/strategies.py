"""Feedback as Hypothesis makes it up: whole histories, and arrays of them."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from langchain_feedback.ranking.views import Candidates, EvidenceView

weights = st.floats(0, 50)
priors = st.floats(0, 10)
kernel_weights = st.floats(0, 1)
cosines = st.floats(-1, 1)
ages = st.floats(-10, 5_000)


class Evidence(NamedTuple):
    """Past questions (rows) by chunks (columns)."""

    kernel: np.ndarray
    positive: np.ndarray
    negative: np.ndarray


@st.composite
def evidence(draw, most_questions=5, most_chunks=5):
    questions, chunks = draw(st.integers(0, most_questions)), draw(st.integers(1, most_chunks))
    cells = arrays.arrays(float, (questions, chunks), elements=weights)
    kernel = arrays.arrays(float, questions, elements=kernel_weights)
    return Evidence(draw(kernel), draw(cells), draw(cells))


@st.composite
def searches(draw):
    """Candidates, of which some may be injected, with a view of the evidence about them."""
    said = draw(evidence())
    questions, chunks = said.positive.shape
    injected = draw(st.integers(0, chunks))
    ranks = [*range(chunks - injected), *[-1] * injected]
    similarity = draw(arrays.arrays(float, questions, elements=cosines))
    exact = draw(arrays.arrays(bool, questions))
    view = EvidenceView(similarity, exact, said.positive, said.negative)
    return Candidates(np.array(ranks, dtype=int)), view
