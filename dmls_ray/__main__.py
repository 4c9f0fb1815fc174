"""`python -m dmls_ray` is `dmls-ray`."""

from dmls_ray.cli.main import main

if __name__ == "__main__":
    main()
