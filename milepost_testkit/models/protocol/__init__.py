"""The model of the protocol, from stored bytes: manifest, timelines, retention, garbage and publication."""
