"""The shipped example jobs over generated data, compared with DuckDB (`make examples`)."""
