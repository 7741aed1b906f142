"""The health of a job: what it is found in, how fresh its sources are, what waits for a person."""
