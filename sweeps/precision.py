"""What does the number format do to the time, memory and accuracy of training?

fp32 is compared with automatic mixed precision in bf16 (add fp16 with --precision), and with TF32 on GPUs. A format
without units in the processor runs as well, but slower; a note says so before the start.
"""

from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(
        Preset(
            name="precision",
            question=__doc__,
            has_modules=False,
            axis="precision",
            axes={"precision": ["fp32", "tf32", "amp-bf16"], "batch_per_rank": [64], "world_size": [1]},
        )
    )
