"""Files of tables: how rows become Parquet and come back, with which columns and partitions."""
