"""The Airflow side: the epoch DAG, its Airflow operators, and what an error means to the scheduler."""
