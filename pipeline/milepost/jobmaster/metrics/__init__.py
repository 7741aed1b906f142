"""Metrics of a job: one table of them, what each document says of them, and the forms in which others read them."""
