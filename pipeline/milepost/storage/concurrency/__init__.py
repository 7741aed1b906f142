"""Requests that do not wait for one another are on their way together."""
