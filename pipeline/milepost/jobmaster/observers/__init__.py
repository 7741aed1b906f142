"""Those who hear of what a job has done, and have no say in it."""
