"""From a name or a file to a checked job."""
