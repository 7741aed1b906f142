"""Timelines and incarnations: leaders, forks, switches of the live timeline, and ends."""
