"""Staging: what subtasks write for a table before the commit point, by rows, by buckets, by joining."""
