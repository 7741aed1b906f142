"""Compatibility decides whether recorded state continues under a changed spec or changed code."""
