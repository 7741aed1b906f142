"""Retention rules: which checkpoints stay, what they reach, and what nothing reaches any more (I8)."""
