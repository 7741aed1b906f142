"""External engines that read published tables: DuckDB, Polars, Spark and others, each in its own environment."""
