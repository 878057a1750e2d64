import pytest

from langchain_feedback.store.feedback_store import FeedbackStore
from tests.unit_tests.retrievers.feedback_kit import AngleEmbeddings


@pytest.fixture
def embeddings():
    return AngleEmbeddings()


@pytest.fixture
def store(tmp_path, embeddings):
    # Patient: a busy machine must not cost a test its feedback.
    with FeedbackStore(
        f"sqlite:///{tmp_path}/feedback.db", embeddings=embeddings, timeout_s=20
    ) as store:
        yield store
