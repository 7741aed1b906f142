"""What tables and keyed state hold, as people read it, and what two checkpoints differ in."""
