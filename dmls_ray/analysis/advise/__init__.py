"""`dmls-ray advise`: the trials of a sweep ranked by an objective."""
