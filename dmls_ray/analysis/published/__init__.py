"""The published reports whose experiments this project repeats."""
