"""What a verdict is, and what it does."""
