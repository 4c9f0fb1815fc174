"""The question `accumulation`, as `dmls-ray sweep accumulation` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("accumulation")
