"""Rows as all operators see them: their columns, order and keys; and what they say of rows that are gone."""
