"""Data planes without Spark: they run the tasks of an epoch in this process."""
