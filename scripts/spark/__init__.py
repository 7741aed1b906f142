"""What the clone has Spark make or fetch: the archive of its classes, the environment that reads open tables."""
