"""What does gradient accumulation do to the time, memory and accuracy of training?

At a fixed batch_per_rank, more accumulation steps make a larger global batch. Gradients are reduced once a step.
Pass --global-batch to fix the global batch instead: then batch_per_rank shrinks, and only time and memory should
change.
"""

from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(
        Preset(
            name="accumulation",
            question=__doc__,
            has_modules=False,
            axis="accum_steps",
            axes={"accum_steps": [1, 2, 4, 8], "batch_per_rank": [16], "world_size": [2]},
        )
    )
