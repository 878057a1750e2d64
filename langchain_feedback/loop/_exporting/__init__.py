"""The forms that reviewed questions leave in."""
