"""Savepoints: copies of checkpoints that a person owns; and starting a job from a savepoint or from tables."""
