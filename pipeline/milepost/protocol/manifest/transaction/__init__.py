"""Requests, preconditions and answers: what one transaction may do to the state."""
