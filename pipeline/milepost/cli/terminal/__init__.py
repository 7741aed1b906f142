"""How a command speaks: options, output, progress, failures, tables."""
