"""The question `grid`, as `dmls-ray sweep grid` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("grid")
