"""Deployable graphs, named in langgraph.json."""
