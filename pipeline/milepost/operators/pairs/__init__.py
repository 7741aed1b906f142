"""Rows of two inputs: buffers, joined columns, order of arrival."""
