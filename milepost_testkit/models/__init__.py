"""What must hold, computed without the product: the protocol, and the data."""
