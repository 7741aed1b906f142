"""Tables in Postgres: projections of the contents of checkpoints."""
