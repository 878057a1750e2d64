"""Quotes: find them in their source, by code."""
