"""Lineage says where the columns of a job's tables come from, by its spec alone."""
