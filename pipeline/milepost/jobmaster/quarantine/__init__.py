"""Quarantine objects of file sources, and release them."""
