"""What the tasks of an epoch do, decided on the driver before its Spark job starts."""
