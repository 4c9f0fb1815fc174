"""The question `launcher`, as `dmls-ray sweep launcher` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("launcher")
