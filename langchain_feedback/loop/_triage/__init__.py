"""What fails, and why."""
