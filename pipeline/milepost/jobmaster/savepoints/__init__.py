"""Copies of checkpoints that a person owns, and where a job starts from: savepoints, tables."""
