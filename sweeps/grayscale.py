"""The question `grayscale`, as `dmls-ray sweep grayscale` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("grayscale")
