"""Row-wise steps of a task: SQL and lookups, without state or an exchange."""
