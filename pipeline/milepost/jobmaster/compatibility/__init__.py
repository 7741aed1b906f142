"""Decide whether recorded state can continue under a changed spec or changed code."""
