"""The Airflow side: DAGs, Airflow operators, the Checkpoints page, and what an error means to the scheduler."""
