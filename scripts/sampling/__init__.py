"""Mutants at random: which changes a module has, which tests reach them, and whether one fails."""
