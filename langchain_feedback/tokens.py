"""Signed tokens that let a browser speak about one answer, and about nothing else."""
