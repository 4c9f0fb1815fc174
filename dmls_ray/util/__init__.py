"""Errors and helpers that every other package may use.

Not public, except the errors that `dmls_ray` exports and `errors.UnavailableError`, which training functions raise.
"""
