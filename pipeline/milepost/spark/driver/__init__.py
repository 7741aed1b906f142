"""One epoch as one Spark job: session, graph, errors."""
