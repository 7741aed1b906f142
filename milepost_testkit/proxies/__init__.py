"""Proxies in front of a server: they record, delay, hold, repeat or break requests."""
