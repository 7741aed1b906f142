"""The jobs of DAGs, their health, and the acts that a user may trigger."""
