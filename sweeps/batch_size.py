"""The question `batch_size`, as `dmls-ray sweep batch_size` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("batch_size")
