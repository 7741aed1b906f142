"""Hypothesis state machines over processes that stop before any store call."""
