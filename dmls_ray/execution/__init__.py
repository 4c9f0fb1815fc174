"""One sweep from its axes to its results: plan, check, run, record."""
