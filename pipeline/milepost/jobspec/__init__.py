"""Job specs: what a user may write, and its meaning before anything runs."""
