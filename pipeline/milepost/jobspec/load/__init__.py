"""Load a job from a file or a name, and report on its graph."""
