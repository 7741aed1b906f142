"""Concurrent requests to stores."""
