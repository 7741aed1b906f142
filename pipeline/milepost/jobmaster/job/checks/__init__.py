"""Checks of a job before it runs: of its stores, and of the library of its gate."""
