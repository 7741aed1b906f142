"""The flights job of the demo: its epochs, kills, open tables and readers."""
