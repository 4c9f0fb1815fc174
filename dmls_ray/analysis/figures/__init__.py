"""Figures: each file works out one, as a `Chart`, from the runs of a sweep."""
