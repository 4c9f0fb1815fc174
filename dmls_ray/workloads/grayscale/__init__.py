"""Colour images turned grey, by every implementation that exists on a machine: what each costs, and that they agree."""
