"""Compare tables, and hash the keys of rows."""
