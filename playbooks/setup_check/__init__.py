"""What can be known to be wrong before any machine is touched: inventory, names, plan, results folder."""
