"""One subtask in one checkpoint: barrier alignment, snapshot and task lifecycle."""
