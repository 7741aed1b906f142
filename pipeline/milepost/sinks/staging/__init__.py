"""What subtasks write for a table before the commit point: rows, buckets and compacted files."""
