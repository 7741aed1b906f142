"""Recorded input processed again, on a fork that takes the live timeline's place."""
