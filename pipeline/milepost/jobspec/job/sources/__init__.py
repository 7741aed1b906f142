"""Sources in a job spec, by format. A source is files that keep arriving, or rows that are landed in a log."""
