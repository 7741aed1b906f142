"""Aggregates per key: their accumulators, over rows that stay and over updates."""
