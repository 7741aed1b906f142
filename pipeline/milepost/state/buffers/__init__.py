"""Buffers: rows on their way from subtask to subtask, in memory, spilled, or part of a checkpoint."""
