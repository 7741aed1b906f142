"""A directory as an object store, and its errors in our terms."""
