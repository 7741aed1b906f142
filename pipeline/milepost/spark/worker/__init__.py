"""The Python worker that Spark forks: its memory, preloaded modules and task metrics."""
