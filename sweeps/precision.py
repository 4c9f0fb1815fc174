"""The question `precision`, as `dmls-ray sweep precision` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("precision")
