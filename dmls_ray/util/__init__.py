"""Errors and helpers that every other package may use."""
