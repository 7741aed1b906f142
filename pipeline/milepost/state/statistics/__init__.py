"""Statistics of keyed state: live rows, due rows and timers."""
