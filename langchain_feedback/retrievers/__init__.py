"""Retrievers that wrap yours: one that learns from feedback."""
