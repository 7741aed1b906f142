"""A page each, as a router."""
