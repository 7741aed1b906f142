"""An epoch, from its trigger to what is subsumed."""
