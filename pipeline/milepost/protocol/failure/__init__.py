"""Failures: what they count for a job, and when an epoch is run again."""
