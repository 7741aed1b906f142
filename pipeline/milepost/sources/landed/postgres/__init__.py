"""A table of a Postgres database, by logical decoding."""
