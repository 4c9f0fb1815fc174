"""The table of a sweep: rows, columns, groups, notes and layouts."""
