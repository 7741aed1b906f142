"""What one epoch reads of a source: its objects listed, those consumed before left out, within limits."""
