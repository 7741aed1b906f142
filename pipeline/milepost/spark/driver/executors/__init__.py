"""Executors are asked before an epoch what they have and do; what is not enough is told in our words."""
