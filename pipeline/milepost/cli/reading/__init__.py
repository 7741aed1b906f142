"""Commands that only read: inspection and diff."""
