"""Random jobs and histories, each node compared with its batch query (`make law`)."""
