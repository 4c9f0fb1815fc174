"""The question `machines`, as `dmls-ray sweep machines` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("machines")
