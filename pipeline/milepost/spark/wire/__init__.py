"""The wire carries rows, barriers and plans between driver and tasks, and from task to task."""
