"""Parquet files, read by row groups."""
