"""Operators as a spec writes them: the keys of each kind."""
