"""What diagnose.yml says of all nodes together: one table, and diagnosis.json."""
