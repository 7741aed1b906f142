"""The runbook has a page for each type of error and each state of a job: what is true then, and what to do."""
