"""Output rows of each kind of operator, derived from its inputs."""
