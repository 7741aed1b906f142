"""One subtask in one checkpoint: its barriers, its snapshot, its life."""
