"""Reports show a job to people. Nothing here changes anything but a reader's pin."""
