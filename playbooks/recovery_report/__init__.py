"""What one run found, did and spent: the record behind recovery.json and the closing summary."""
