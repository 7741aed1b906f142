"""The keys of a job spec, and what of them only a machine can resolve."""
