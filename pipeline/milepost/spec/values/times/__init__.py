"""Times as a spec writes them: durations, calendar units, cron expressions, time zones."""
