"""Storage holds object stores, a job's keys and the manifest log. The only home of boto3."""
