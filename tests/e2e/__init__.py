"""A package, so that its fixtures end with its last test: Airflow stops before the rest of the suite runs."""
