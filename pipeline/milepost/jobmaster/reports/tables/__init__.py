"""Tables and keyed state as people read them, and what two checkpoints differ in."""
