"""Up to which batch size do larger batches save steps to a target accuracy, and which batch gets there first?

Batch size and learning rate are one question: each batch is judged at its best learning rate. lr is scaled by the
square root of the batch, and several multiples of it are tried; pass others with --lr, and --lr-scaling none for plain
values. Half of the repeats choose the learning rate, the others are reported. --noise-scale --accum-steps 2 also
estimates the gradient noise scale, which predicts the critical batch.
"""

from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(
        Preset(
            name="critical_batch",
            question=__doc__,
            has_modules=False,
            axis="global_batch",
            axes={
                "global_batch": [8, 16, 32, 64, 128, 256, 512],
                "lr": [0.002, 0.004, 0.008, 0.016, 0.032],
                "lr_scaling": ["sqrt"],
                "world_size": [1],
                "target_accuracy": [0.95],
                "target_tests": [10],
                "stop_at_target": [True],
                "test_batch_per_rank": [512],
                "epochs": [60],
            },
            options={"repeats": 10},
        )
    )
