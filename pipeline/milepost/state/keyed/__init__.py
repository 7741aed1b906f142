"""Keyed state of one operator in one subtask: restore, change, freeze, encode."""
