"""How single values are written: names, types, durations, patterns, aggregates, expectations, formats."""
