"""The Airflow operators: each does its part of the protocol, through the job master and nothing else."""
