"""Times of an epoch: of its steps, of its tasks, and what follows of how much it takes."""
