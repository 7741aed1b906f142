"""Data model: DuckDB batch queries for the expected rows of operators and tables."""
