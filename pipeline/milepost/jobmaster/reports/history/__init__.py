"""The history of a job: pages of checkpoints and timeline switches, and figures over time."""
