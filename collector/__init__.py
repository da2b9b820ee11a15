"""From scattered result files to tables that can be trusted."""
