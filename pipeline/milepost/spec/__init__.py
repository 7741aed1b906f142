"""Job specs: what a user may write, and what it means before anything runs."""
