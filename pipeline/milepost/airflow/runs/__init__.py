"""Runs that have ended get a note; of a failed one, notifiers are told."""
