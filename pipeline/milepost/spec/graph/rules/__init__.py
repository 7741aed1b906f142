"""Rules derive, for each kind of operator, the rows that it gives from those of its inputs."""
