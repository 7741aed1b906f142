"""Real servers on loopback: S3, Postgres, Spark Connect, a Spark cluster, and receivers of mail and events."""
