"""Proposals for specs that do not exist yet."""
