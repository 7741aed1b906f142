"""Reading commands: inspection and diff; nothing of a job changes."""
