"""S3 and whatever speaks it: its store, its errors in our terms, and the proof that an endpoint can be trusted."""
