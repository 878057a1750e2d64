"""Retrievers that wrap one of yours."""
