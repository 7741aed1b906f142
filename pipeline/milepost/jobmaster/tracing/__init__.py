"""Trace an output row back to the input rows that made it."""
