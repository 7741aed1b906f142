"""What a task leaves behind: its outcome for the scheduler, and a log without secrets or chatter."""
