"""The terminal's side of a command: options, output, progress, failures, tables."""
