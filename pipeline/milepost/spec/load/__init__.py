"""Load a job from a spec file or a job name, and report on its graph."""
