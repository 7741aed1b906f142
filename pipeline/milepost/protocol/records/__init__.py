"""Records, ids, errors and object keys that the protocol is written in."""
