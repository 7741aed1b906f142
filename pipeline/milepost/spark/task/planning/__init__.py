"""Plan an epoch's tasks on the driver, before its Spark job starts."""
