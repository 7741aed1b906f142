"""The data flow of a job with the figures of its newest epochs."""
