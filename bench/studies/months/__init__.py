"""Months of a small job: its epochs by the thousand, beside other jobs, and over many small objects."""
