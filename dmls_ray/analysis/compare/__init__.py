"""`dmls-ray compare`: the differences between two sweeps."""
