"""The DAGs of a job, made from its spec."""
