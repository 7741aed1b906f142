"""The data plane: one epoch as one Spark job. The only home of pyspark at module level."""
