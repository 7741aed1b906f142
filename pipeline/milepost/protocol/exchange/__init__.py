"""What crosses from subtask to subtask and to the driver: barriers, channel state, acknowledgements."""
