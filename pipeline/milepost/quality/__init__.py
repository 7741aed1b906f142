"""The quality gate: expectations on the rows an epoch would publish, decided before the commit point."""
