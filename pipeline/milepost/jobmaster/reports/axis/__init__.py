"""The epochs of a job on one axis of time, for a page."""
