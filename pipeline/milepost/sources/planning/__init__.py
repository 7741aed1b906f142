"""Plan what one epoch reads of a source, and which subtask reads it."""
