"""Stored records as canonical JSON, strict in both directions."""
