"""Plans that the driver sends to tasks, and rows and barriers between tasks."""
