"""What the store knows of a chunk: its score, and whether it is hidden."""
