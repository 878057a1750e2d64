"""The same as a chat: messages in, one verified message more out, annotated with citations."""

from graphs.defaults import default_model, default_retriever, default_tokens
from langchain_feedback import create_reliable_rag

graph = create_reliable_rag(
    default_retriever(),
    default_model(),
    tokens=default_tokens(),
    messages=True,
    citations="annotations",
    name="messages_rag",
)
