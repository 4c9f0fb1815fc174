"""One configuration with its runs, how two of them compare, and which differ in one field alone."""
