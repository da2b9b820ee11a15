"""Measuring the measurer: a server whose true times are known, and what the client makes of it."""
