"""Parts of the suggestions: how chunks are used, and where they could be cut."""
