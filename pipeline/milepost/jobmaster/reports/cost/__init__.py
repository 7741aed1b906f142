"""Costs of a job, estimated by the prices of its spec."""
