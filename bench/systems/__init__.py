"""One module per system that is compared; each runs in a process of its own (`bench/worker.py`)."""
