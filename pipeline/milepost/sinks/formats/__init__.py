"""Formats of tables: the thin edges that keep a table's log and commit to it by compare-and-set."""
