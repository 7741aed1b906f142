"""Object stores for tests: in memory, counted, hooked, faulty, and stepped call by call."""
