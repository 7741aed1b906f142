"""Upkeep follows the commit point and keeps the log small: subsumption, garbage, savepoints, pins."""
