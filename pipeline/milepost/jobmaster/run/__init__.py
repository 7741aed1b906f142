"""An epoch, from its trigger to the subsumption of older checkpoints."""
