"""What do more ranks do to the time, memory and accuracy of training?

Weak scaling by default: batch_per_rank is fixed, so global_batch grows with the ranks. Pass --global-batch for strong
scaling: then batch_per_rank shrinks as ranks are added, and every world size trains on the same samples in the same
steps.
"""

from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(
        Preset(
            name="world_size",
            question=__doc__,
            has_modules=False,
            axis="world_size",
            axes={"world_size": [1, 2], "batch_per_rank": [64]},
        )
    )
