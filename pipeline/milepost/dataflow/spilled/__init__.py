"""Rows that are more than memory holds: those that wait on the disk, and those that are put in order there."""
