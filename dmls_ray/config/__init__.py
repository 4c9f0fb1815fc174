"""What to run and how: fields, configuration base classes, options, grids and search spaces. Performs no I/O."""
