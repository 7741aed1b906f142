"""Column lineage of a job's tables, derived from the spec alone."""
