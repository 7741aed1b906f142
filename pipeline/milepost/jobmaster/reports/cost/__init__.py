"""Estimate the costs of a job from the prices in its spec."""
