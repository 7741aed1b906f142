"""Epochs through Airflow, beside tasks that do nothing and beside what a team would write in their place."""
