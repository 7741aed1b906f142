"""A package, so that its fixtures end with its last test: Airflow does not run beside the rest of the suite."""
