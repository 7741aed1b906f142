"""What executors have and do: asked before an epoch, and told in our words where it is not enough."""
