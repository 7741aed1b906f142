"""The manifest log, the single commit point of a job."""
