"""Commands about specs, the machine, and what a job has stored."""
