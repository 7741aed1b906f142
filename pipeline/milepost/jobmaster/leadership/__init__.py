"""Who may act on a timeline: claim, sweep, complete, abort; the end of a job; sinks that follow."""
