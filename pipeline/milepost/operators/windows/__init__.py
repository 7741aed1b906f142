"""Aggregates per key and event-time window: windows that touch or overlap, and sessions."""
