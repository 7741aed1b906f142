"""Commands for specs, the machine, and a job's storage."""
