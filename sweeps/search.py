"""The question `search`, as `dmls-ray sweep search` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("search")
