"""The history of a job: its checkpoints and switches by pages, and figures of its epochs over time."""
