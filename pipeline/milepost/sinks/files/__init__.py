"""Parquet files of tables: encoding, reading, schemas, partitions and deletes."""
