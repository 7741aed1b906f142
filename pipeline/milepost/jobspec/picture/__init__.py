"""Draw the graph of a job."""
