"""The question `world_size`, as `dmls-ray sweep world_size` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("world_size")
