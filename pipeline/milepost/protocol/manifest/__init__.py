"""The manifest's transitions: requests, decisions, events and invariants."""
