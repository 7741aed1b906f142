"""Object stores for tests: in memory, counted, hooked, faulty, and moved on call by call."""
