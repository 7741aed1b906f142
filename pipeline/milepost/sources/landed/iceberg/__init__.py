"""Format `iceberg`: the rows that are appended to an Iceberg table."""
