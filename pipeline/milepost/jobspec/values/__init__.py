"""Values in a spec: names, types, durations, patterns, aggregates, expectations, formats."""
