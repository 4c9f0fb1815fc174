"""Workload of training scripts, which are run unchanged and measured from outside."""
