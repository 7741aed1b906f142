"""Walk every interleaving of a few processes and check the invariants in each state."""
