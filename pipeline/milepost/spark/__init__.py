"""The data plane: one epoch is one Spark job. Only this package imports PySpark at module level."""
