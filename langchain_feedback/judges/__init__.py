"""Judges: grade chunks, check answers, find quotes, with a chat model or without one."""
