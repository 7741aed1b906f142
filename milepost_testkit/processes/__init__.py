"""Start and end processes of the operating system: ports, clean environments, whole process trees."""
