"""Spark's class archive, and the environment of a Spark that reads open tables."""
