"""Format `postgres`: the changes of one table, by logical decoding."""
