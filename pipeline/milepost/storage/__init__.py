"""Object stores, the keys of a job, and the manifest log. Only this package imports boto3."""
