"""Stateful operators: one file each, on the contract in `contract.py`; `build.py` makes them from the spec."""
