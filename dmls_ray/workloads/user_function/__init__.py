"""The workload that calls a training function of the user."""
