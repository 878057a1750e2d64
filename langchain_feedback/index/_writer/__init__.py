"""Parts of the writer: its plan, its steps, and what a vector store can do."""
