"""The parts of a weekly run."""
