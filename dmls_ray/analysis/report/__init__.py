"""The report of a sweep: one self-contained HTML file."""
