"""The exchange carries barriers, channel state and acknowledgements between subtasks and to the driver."""
