"""Files derived from the records of a sweep: CSV, Markdown, LaTeX and Parquet tables."""
