"""The repository itself: its import rules, its distribution, and environments that install it."""
