"""The tables of an epoch: bucket plans, maintenance plans, and the preparation of commits."""
