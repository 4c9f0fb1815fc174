"""What does the communication library do to the time, memory and accuracy of training on several ranks?

A backend that this machine lacks is a skipped row with the reason. One rank communicates with no other, so
world_size 1 is left out; add it with --world-size 1 2 for the speed-up.
"""

from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(
        Preset(
            name="backend",
            question=__doc__,
            has_modules=False,
            axis="backend",
            axes={"backend": ["gloo", "nccl"], "batch_per_rank": [32, 128], "world_size": [2]},
        )
    )
