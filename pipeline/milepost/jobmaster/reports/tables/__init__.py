"""Read tables and keyed state, and compare two checkpoints."""
