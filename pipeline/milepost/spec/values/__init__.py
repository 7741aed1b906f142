"""Single values of a spec: names, types, durations, patterns, aggregates, expectations, formats."""
