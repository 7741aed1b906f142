"""The job graph: nodes, columns, levels, and what of recorded state still fits it."""
