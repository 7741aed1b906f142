"""Retention: subsume checkpoints, collect garbage, prune tables, audit the storage (I8)."""
