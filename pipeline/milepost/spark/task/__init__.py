"""What each Spark task of an epoch runs: a source or the subtasks of a level, and the output stage behind it."""
