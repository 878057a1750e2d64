"""The parts of the health report."""
