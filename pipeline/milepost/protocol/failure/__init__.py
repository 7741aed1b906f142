"""Failures: their abort reasons, how they count, and when an epoch restarts."""
