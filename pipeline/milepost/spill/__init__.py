"""Rows that exceed memory: spilled to disk, and sorted there."""
