"""Where bytes live: object stores, the keys of a job, and the manifest log. The only home of boto3."""
