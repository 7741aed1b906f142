"""Sources list the objects of a landing store, plan what an epoch reads, and read it."""
