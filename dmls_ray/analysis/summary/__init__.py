"""The answer to the question of a sweep: a headline and a few lines."""
