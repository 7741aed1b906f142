"""The quality gate: expectations that may veto an epoch before anything is visible."""
