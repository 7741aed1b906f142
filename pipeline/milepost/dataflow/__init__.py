"""A job's dataflow: sources, operators, sinks, and the gate before they publish."""
