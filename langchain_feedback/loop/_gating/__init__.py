"""How a ranker is tried, and what decides."""
