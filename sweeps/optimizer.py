"""The question `optimizer`, as `dmls-ray sweep optimizer` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("optimizer")
