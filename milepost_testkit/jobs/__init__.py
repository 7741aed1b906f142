"""Jobs that tests run: over folders, over buckets, and with a manifest in memory."""
