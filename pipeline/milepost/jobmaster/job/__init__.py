"""One job, opened: its stores, its log, its code, who acts, and what it would read next."""
