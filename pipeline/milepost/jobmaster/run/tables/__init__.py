"""The tables of an epoch: what its subtasks build on, what they make of old files, and what is prepared."""
