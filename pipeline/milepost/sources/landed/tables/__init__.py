"""Shared parts of sources that are open tables."""
