"""Command lines: sweep scripts, `dmls-ray` and the progress view.

Not public, except `sweep_script.main` for sweep scripts.
"""
