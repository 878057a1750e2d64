"""The checks behind a chunk's quality, one a module."""
