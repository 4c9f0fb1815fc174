"""The question `quantization`, as `dmls-ray sweep quantization` asks it."""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main("quantization")
