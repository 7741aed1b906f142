"""What has a page of its own: how a job grows old, round trips to a far store, waits for commands, open tables."""
