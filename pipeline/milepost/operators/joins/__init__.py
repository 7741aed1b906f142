"""Rows of two inputs that belong together: within an interval, as of a time, or looked up."""
