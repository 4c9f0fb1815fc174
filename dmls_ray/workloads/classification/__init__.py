"""The built-in workload: training of image classifiers."""
