"""The batch query of each kind of operator."""
