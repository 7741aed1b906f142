"""Which checkpoints are retained, what they refer to, and what may be deleted (I8)."""
