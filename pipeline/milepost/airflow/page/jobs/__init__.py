"""What pages know of jobs: which a DAG has, how they stand, and what may be done about that."""
