"""Acts that a person may ask of a job in Airflow: of each its form, its plan, and the tasks that carry it out."""
