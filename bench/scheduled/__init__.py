"""Epochs through Airflow, compared with tasks that do nothing and with what a team would write instead."""
