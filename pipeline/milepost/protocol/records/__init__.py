"""The vocabulary of the protocol: ids, records, reasons, errors, and where an object of a job lies."""
