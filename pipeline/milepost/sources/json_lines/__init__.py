"""JSON lines: one JSON object per line."""
