"""The question `backend`, as `dmls-ray sweep backend` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("backend")
