"""Records of sinks: what was staged, what a table consists of, carries, and is owned by."""
