"""The Python worker that Spark forks: its memory, what it imports once, what a task measures in it."""
