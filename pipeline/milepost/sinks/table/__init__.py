"""The table behind a sink: whose it is, how it is prepared, and how it moves."""
