"""Faults inside tasks: frozen workers, lost workers, little memory, damaged source objects."""
