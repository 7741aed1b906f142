"""Keyed state: key groups, immutable runs, merge on read, the node-local cache. Imports only `protocol`."""
