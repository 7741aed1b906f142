"""CSV: files with a header, or with column names from the options."""
