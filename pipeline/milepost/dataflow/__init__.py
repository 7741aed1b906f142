"""What a job consists of: sources, operators, sinks, and the gate before they publish."""
