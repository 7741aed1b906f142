"""Delta tables: the format's own log, committed by the `deltalake` library and read by every engine that knows it."""
