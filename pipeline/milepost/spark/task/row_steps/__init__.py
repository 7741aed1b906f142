"""The row-wise steps of a task: SQL and lookups, which need neither state nor an exchange."""
