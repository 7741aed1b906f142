"""Times in a spec: durations, calendar units, cron expressions, time zones."""
