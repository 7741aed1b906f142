"""The `milepost` command: in this process, in its own process, and in one that dies by plan."""
