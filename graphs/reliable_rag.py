"""A question in, a verified answer or an abstention out."""

from graphs.defaults import default_model, default_retriever, default_tokens
from langchain_feedback import create_reliable_rag

graph = create_reliable_rag(default_retriever(), default_model(), tokens=default_tokens())
