"""Code that the readers of several formats share: streams, lines, declared columns, diagnosis of bad records."""
