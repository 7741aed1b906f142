"""Commands that take a job to another checkpoint, or make it anew: rollback, backfill, savepoints."""
