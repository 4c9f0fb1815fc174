"""`dmls-ray advise`: rank configurations by an objective and suggest what to run next."""
