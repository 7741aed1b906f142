"""Migrating a sink's table to another format and place."""
