"""The SQL of a `sql` operator: row-wise and deterministic."""
