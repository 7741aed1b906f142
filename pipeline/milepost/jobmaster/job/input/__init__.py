"""Plan the input of the next epoch: objects of sources, and versions of static sources."""
