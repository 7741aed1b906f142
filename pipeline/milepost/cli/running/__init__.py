"""Commands by which epochs run, end, and run again."""
