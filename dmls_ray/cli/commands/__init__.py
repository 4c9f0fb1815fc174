"""The commands of `dmls-ray`, by what they do: `tables` prints, `files` writes, `runs` finds.

A command is a function and `<command>_arguments`, which adds its flags. The function's docstring is the help text.
"""
