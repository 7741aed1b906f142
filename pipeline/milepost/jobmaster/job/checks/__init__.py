"""Checks of a job before it runs: its stores, and the expectations of its quality gate."""
