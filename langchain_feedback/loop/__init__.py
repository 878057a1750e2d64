"""From signals to a fix: derived signals, triage, the review queue, corrections, exports."""
