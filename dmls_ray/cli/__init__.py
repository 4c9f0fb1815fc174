"""Command lines: sweep scripts, `dmls-ray` and the progress view."""
