"""The manifest log and other stored records as canonical JSON."""
