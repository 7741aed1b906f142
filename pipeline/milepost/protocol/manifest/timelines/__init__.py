"""Timelines and incarnations: who leads, how a line forks, is switched or ends."""
