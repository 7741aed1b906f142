"""The parts of a transition: requests, preconditions, events, rules and answers."""
