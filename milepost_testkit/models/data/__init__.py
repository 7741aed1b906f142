"""The model of the data: DuckDB batch queries that say what each operator and each table must hold."""
