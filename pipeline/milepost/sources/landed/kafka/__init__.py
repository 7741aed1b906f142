"""Format `kafka`: the committed messages of topics."""
