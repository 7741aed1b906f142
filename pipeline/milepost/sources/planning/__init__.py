"""Planning decides what one epoch reads of a source, and by whom: objects listed, less those consumed, in limits."""
