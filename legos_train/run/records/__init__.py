"""What a run says of its steps: rows of metrics, logged episodes, facts for the report."""
