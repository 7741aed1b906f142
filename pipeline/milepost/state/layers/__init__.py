"""Layers: rows sorted by the hash of their key, and how keys are hashed, compared and found in them."""
