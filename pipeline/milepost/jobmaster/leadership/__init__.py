"""Leadership decides who acts on a timeline: claim, sweep, complete, abort; a job's end; sinks that follow."""
