"""Jobs and tours for the pages in a real browser (`make pictures`)."""
