"""What a failure means for a checkpoint, and for a process that may run it again."""
