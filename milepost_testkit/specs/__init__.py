"""Job specs for tests: the shipped examples, edits, graphs, cases, and hostile specs."""
