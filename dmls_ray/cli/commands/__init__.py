"""The commands of `dmls-ray`: one module each, with `add_arguments` and `run`. Its docstring is the help text."""
