"""Jobs as pages know them: which a DAG has, how they stand, and what may be done about that."""
