"""Ray Tune: one Tune trial per run, searchers and pruning."""
