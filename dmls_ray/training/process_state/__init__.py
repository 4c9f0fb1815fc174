"""What a run may change in its process: set back after the run, or named if it cannot be."""
