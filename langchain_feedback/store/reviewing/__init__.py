"""The rows of the review queue: what waits, who has it, and what was said of it."""
