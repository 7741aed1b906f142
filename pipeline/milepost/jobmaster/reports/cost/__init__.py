"""What a job costs: an estimate by the prices of its spec."""
