"""The manifest log: one commit point per job."""
