"""Delta tables, read and committed with the `deltalake` library."""
