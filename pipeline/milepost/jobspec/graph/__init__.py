"""The job graph: nodes, columns, levels, and compatibility with recorded state."""
