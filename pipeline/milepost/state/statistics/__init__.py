"""How many rows a state has, which are due, which timers wait: from keys and times alone."""
