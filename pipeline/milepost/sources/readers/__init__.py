"""Readers: the bytes of one object as record batches, and its bad records told apart."""
