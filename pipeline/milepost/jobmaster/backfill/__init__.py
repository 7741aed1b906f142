"""Backfill: replay recorded input on a fork, which then replaces the live timeline."""
