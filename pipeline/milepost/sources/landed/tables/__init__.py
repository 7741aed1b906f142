"""What sources that are open tables share."""
