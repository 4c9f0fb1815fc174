"""Any question: give several values to any flags, and every combination is run.

Example: python sweeps/grid.py --optimizer adam sgd --lr 0.001 0.01 --batch-per-rank 32 64
"""

from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(
        Preset(
            name="grid",
            description=__doc__,
            has_modules=False,
            axis=None,
            axes={"batch_per_rank": [32], "world_size": [1]},
        )
    )
