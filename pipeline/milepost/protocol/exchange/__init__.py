"""The exchange of an epoch: barriers, acknowledgements, channel state and watermarks."""
