"""The signals endpoint and the review pages, as a Starlette app (extra `server`)."""
