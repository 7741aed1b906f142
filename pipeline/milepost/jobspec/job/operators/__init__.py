"""The keys of each kind of operator."""
