"""Which checkpoints are kept, what they reach, and what nothing reaches any more (I8)."""
