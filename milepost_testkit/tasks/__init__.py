"""The tasks of an epoch in this process: the data plane, input gates, subtasks and staging."""
