"""The retriever and the model of the graphs here, by environment.

`OPENAI_API_KEY` or `OPENAI_BASE_URL` set: langchain-openai for chat and embeddings,
FAISS for search. Otherwise the offline parts and TF-IDF. `DOCS_FOLDER` names your
files; without it the graphs answer from the demo's handbook. `LANGCHAIN_FEEDBACK_DATABASE`
names a feedback store: then answers are kept, ratings change what comes next, and with
`LANGCHAIN_FEEDBACK_KEYS` each answer brings a token for a browser's signals.
"""

import os
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableLambda

from langchain_feedback import FeedbackRetriever, FeedbackStore, FeedbackTokens
from langchain_feedback.demo.handbook import handbook_documents
from langchain_feedback.local.reading import read_folder
from langchain_feedback.local.splitting import split_sections
from langchain_feedback.local.tfidf import TfidfRetriever

_building = Lock()


def has_openai() -> bool:
    """Whether a hosted model, or a server that speaks its wire format, is configured."""
    return bool(os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"))


def default_model() -> BaseChatModel | Literal["offline"]:
    """Return the chat model named by `OPENAI_MODEL`, or the word for none."""
    if not has_openai():
        return "offline"
    from langchain_openai import ChatOpenAI  # noqa: PLC0415  an extra

    name = os.environ.get("OPENAI_MODEL", "gpt-4.1-mini")
    return ChatOpenAI(model=name, **_credentials())


def default_retriever(k: int = 4) -> Runnable[str, list[Document]]:
    """Return a retriever that reads and indexes the documents at its first search.

    A server imports its graphs before it is ready; reading files or embedding them
    has no place there. The search is a plain function, so an async run calls it in
    a thread.
    """

    def search(question: str) -> list[Document]:
        with _building:
            index = _index(k)
        return index.invoke(question)

    base = RunnableLambda(search, name="search")
    store = default_store()
    return base if store is None else FeedbackRetriever(base_retriever=base, store=store, k=k)


@cache
def default_store() -> FeedbackStore | None:
    """Return the feedback store that the environment names, if it does."""
    database = os.environ.get("LANGCHAIN_FEEDBACK_DATABASE")
    if not database:
        return None
    url = database if "://" in database else f"sqlite:///{database}"
    return FeedbackStore(url, namespace=os.environ.get("LANGCHAIN_FEEDBACK_NAMESPACE", "default"))


def default_tokens() -> FeedbackTokens | None:
    """Return what signs the tokens of answers; None without a store or without keys."""
    return None if default_store() is None else FeedbackTokens.from_env()


@cache
def _index(k: int) -> Runnable[str, list[Document]]:
    chunks = _chunks()
    if not has_openai():
        return TfidfRetriever.for_files(chunks, k=k)
    from langchain_community.vectorstores import FAISS  # noqa: PLC0415  an extra
    from langchain_openai import OpenAIEmbeddings  # noqa: PLC0415  an extra

    name = os.environ.get("OPENAI_EMBEDDING_MODEL", "text-embedding-3-small")
    # Text, not token ids: only the hosted API takes those, and the tokenizer is a download.
    embeddings = OpenAIEmbeddings(model=name, check_embedding_ctx_length=False, **_credentials())
    return FAISS.from_documents(chunks, embeddings).as_retriever(search_kwargs={"k": k})


def _chunks() -> list[Document]:
    folder = os.environ.get("DOCS_FOLDER")
    return split_sections(read_folder(Path(folder)).sections) if folder else handbook_documents()


def _credentials() -> dict[str, Any]:
    # A server of one's own often wants no key, but the client insists on one.
    return {} if os.environ.get("OPENAI_API_KEY") else {"api_key": "none"}
