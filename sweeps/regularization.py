"""The question `regularization`, as `dmls-ray sweep regularization` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("regularization")
