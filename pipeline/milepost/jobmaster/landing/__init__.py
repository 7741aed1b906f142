"""Land the sources of a job into their logs."""
