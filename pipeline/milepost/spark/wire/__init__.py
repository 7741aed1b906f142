"""What travels between driver and tasks, and from task to task."""
