"""What does the number format do to the time, memory and accuracy of training?

fp32 against automatic mixed precision in bf16 (add fp16 by --precision), and TF32 where there are GPUs. Where the
processor has no units for a format it is said before the start: it runs there all the same, and slower.
"""

from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main(
        name="precision",
        question=__doc__,
        axis="precision",
        defaults={"precision": ["fp32", "tf32", "amp-bf16"], "batch_per_rank": [64], "world_size": [1]},
    )
