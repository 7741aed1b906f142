"""Input that a job would read next: objects of its sources, and versions of its static ones."""
