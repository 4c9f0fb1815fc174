"""The report of a sweep: one HTML file with everything in it, that fetches nothing."""
