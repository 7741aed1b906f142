"""Sinks: where an epoch's rows become visible, all or none, in checkpoint order (I14)."""
