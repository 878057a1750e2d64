"""Parts that make a RAG application reliable."""
