"""Buffers of rows in flight between subtasks: in memory, spilled, or part of a checkpoint."""
