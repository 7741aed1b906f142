"""Runs: immutable Parquet files of changed rows, their handles, and what replaces them."""
