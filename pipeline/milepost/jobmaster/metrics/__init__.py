"""Metrics of a job: their table, their values in documents, and the formats that monitoring systems read."""
