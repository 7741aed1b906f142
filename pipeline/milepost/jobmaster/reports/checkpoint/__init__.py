"""Reports about one checkpoint: its outcome, and what its epoch read, computed and published."""
