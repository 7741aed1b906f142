"""Format `delta`: the rows that are appended to a Delta table."""
