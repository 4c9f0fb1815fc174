"""What do more machines, and more ranks on each, do to the time and accuracy of training?

Weak scaling: batch_per_rank is fixed, so global_batch grows with the ranks; pass --global-batch for strong scaling.
Start Ray on each machine first (ray start --head here, ray start --address=... on the others) and pass --address auto.
A run that needs more machines than there are is a skipped row with the reason. Round trip and bandwidth of the link
are measured before each run, and shown next to the communication time that training did not overlap.
"""

from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(
        Preset(
            name="machines",
            question=__doc__,
            has_modules=False,
            axis="machines",
            axes={"machines": [1, 2], "ranks_per_machine": [1, 2], "batch_per_rank": [32]},
            layout="machines",
        )
    )
