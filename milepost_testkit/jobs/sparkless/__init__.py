"""Small jobs with the real job master and no Spark."""
