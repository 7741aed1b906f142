"""What people read of a job. Nothing here changes anything but a reader's pin."""
