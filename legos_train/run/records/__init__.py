"""A run's records of its steps: rows of metrics, logged episodes, facts for the report."""
