"""Planning decides on the driver what the tasks of an epoch do, before its Spark job starts."""
