"""How Delta and Iceberg tables are opened and read: shared by sinks and sources."""
