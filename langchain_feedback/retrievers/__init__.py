"""Retrievers that wrap yours: one learns from feedback, one leaves out repeats."""
