"""Random mutants: the mutations of a module, the tests that reach them, and whether one fails."""
