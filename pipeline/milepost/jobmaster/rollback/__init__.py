"""Return a job to an earlier checkpoint, or make an imported checkpoint its head."""
