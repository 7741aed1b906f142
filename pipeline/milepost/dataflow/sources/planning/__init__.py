"""What one epoch reads of a source, and by whom: objects listed, those consumed left out, within limits."""
