"""What is checked of a job before it runs: its stores, and the library of its gate."""
