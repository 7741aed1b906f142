"""The stored form of the manifest log, byte by byte."""
