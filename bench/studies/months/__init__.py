"""Months of a small job: thousands of epochs, next to other jobs, and over many small objects."""
