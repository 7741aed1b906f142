"""Systems that merge the rows of an epoch into a table by key."""
