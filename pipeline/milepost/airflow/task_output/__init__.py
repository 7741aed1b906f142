"""A task leaves its outcome for the scheduler, and a log without secrets or chatter."""
