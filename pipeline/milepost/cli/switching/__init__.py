"""Commands that move a job to another checkpoint: rollback, backfill, savepoints."""
