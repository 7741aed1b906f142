"""The health of a job: its condition, the freshness of its sources, unfinished work."""
