"""The keys of a job spec, and resolving references and Connections."""
