"""Acts on a job in Airflow: the form, plan and tasks of each."""
