"""A user's class as an operator: what it declares, how it travels, and its epoch."""
