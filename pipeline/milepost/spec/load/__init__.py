"""The loader turns a name or a file into a checked job."""
