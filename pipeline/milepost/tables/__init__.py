"""What sinks and sources share of tables: records of Milepost, and how Delta and Iceberg tables are opened."""
