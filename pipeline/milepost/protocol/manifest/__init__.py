"""The state machine behind the manifest log: one entry, one transition (I1)."""
