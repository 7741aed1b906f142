"""State statistics count rows that are alive or due, and timers, from keys and times alone."""
