"""An opened job: its stores, log, code, sessions and next input."""
