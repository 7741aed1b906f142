"""Observers receive a job's transitions, and cannot affect it."""
