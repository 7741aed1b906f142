"""Terminal input and output of commands: options, output, progress, failures, tables."""
