"""What does each regulariser do to accuracy, and to the gap between training and test?

One regulariser is added at a time: dropout, batch normalisation, label smoothing, weight decay, L1, flips and crops,
early stopping. A flag for any of them (--dropout 0 0.3 0.5) runs that grid instead.
"""

from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(
        Preset(
            name="regularization",
            question=__doc__,
            has_modules=False,
            axis=None,
            axes={"batch_per_rank": [32], "world_size": [1], "epochs": [15]},
            variants=[
                {},
                {"dropout": 0.3},
                {"batch_norm": "on"},
                {"label_smoothing": 0.1},
                {"weight_decay": 1e-3},
                {"l1": 1e-4},
                {"augmentation": "crop"},
                {"early_stopping": "test_loss"},
            ],
        )
    )
