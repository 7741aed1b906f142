"""Every use case of a job; the only door for DAGs, command line and UI."""
