"""Measurements of what dmls_ray costs; each module is a program."""
