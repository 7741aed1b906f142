"""What a person may ask of a job in Airflow: each act, its form, its plan, and the tasks that carry it out."""
