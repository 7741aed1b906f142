"""Migrate a sink's table to another format or location."""
