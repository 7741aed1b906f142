"""A real Airflow and its jobs, and the tasks of a DAG run without one."""
