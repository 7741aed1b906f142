"""The Checkpoints page: a tab of a job's DAGs in Airflow's UI."""
