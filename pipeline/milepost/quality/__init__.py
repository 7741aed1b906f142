"""The quality gate: expectations that can veto an epoch before it is published."""
