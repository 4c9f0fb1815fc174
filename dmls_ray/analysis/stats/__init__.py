"""Intervals, paired comparisons, censored times, scaling laws and number formats. Knows no record."""
