"""Whole runs: from data and noise to a table of results."""
