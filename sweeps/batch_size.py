"""What does the batch size do to the time, memory and accuracy of training, on one rank and on two?

Weak scaling: batch_per_rank is the same for all world sizes, so global_batch grows with the ranks. Pass --global-batch
for strong scaling, and --lr-scaling linear to scale the learning rate with the global batch.
"""

from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(
        Preset(
            name="batch_size",
            question=__doc__,
            has_modules=False,
            axis="batch_per_rank",
            axes={"batch_per_rank": [16, 32, 64, 128], "world_size": [1, 2]},
        )
    )
