"""What the runs of a sweep show, as data: effects with their verdicts, and whether more repeats are needed."""
