"""Transitions after the commit point: confirmation, subsumption, garbage, savepoints, pins, compaction."""
