"""Known faults: what they cover, what is remembered of them on a node, and when one applies."""
