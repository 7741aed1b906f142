"""The Airflow side: DAGs, Airflow operators, and what an error means to the scheduler."""
