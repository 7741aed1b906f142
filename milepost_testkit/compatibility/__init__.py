"""Storages of released versions, which every later version must continue."""
