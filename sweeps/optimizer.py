"""What does the optimizer do to the time, memory and accuracy of training, at one learning rate?

No learning rate suits all optimizers: pass several with --lr, and compare each optimizer at its best one.
"""

from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(
        Preset(
            name="optimizer",
            question=__doc__,
            has_modules=False,
            axis="optimizer",
            axes={
                "optimizer": ["adam", "adamw", "sgd", "rmsprop"],
                "batch_per_rank": [32],
                "world_size": [1],
            },
        )
    )
