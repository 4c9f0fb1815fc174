"""Workload of commands, which are run as they are: their wall time, and numbers that they print."""
