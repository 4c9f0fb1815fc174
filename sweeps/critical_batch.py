"""The question `critical_batch`, as `dmls-ray sweep critical_batch` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("critical_batch")
