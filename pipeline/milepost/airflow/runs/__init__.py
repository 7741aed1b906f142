"""What is told of a run when it has ended: its note, and the notifiers of a failed one."""
