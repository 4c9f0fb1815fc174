"""Data sets by name, prepared once a machine, sharded exactly, and fed to a rank."""
