"""Leadership of a timeline, the lifecycle of a job, and the commits and moves of its sinks."""
