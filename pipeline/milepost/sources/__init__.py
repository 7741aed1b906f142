"""Sources: objects of a landing store, planned by version and read as record batches."""
