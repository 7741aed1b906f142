"""Going back to an earlier checkpoint, and making an imported one the head."""
