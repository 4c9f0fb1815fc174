"""Which configuration trains best? Many are tried side by side, and poor ones are stopped after an epoch or more.

Runs share the machine, so their times mean nothing: a search is for accuracy. --searcher optuna (pip install
'dmls_ray[search]') chooses configurations by the results of earlier runs; --scheduler none stops no run early. At its
end a search prints two commands for the best configuration: one trains it with other seeds, one keeps its weights.
"""

from dmls_ray.cli.sweep_script import Preset, main
from dmls_ray.config.search_space import Range

if __name__ == "__main__":
    main(
        Preset(
            name="search",
            question=__doc__,
            has_modules=False,
            axis=None,
            axes={
                "lr": Range(1e-4, 1e-1, log=True),
                "batch_per_rank": [16, 32, 64],
                "optimizer": ["adam", "adamw", "sgd", "rmsprop"],
                "dropout": Range(0.0, 0.5),
                "epochs": [8],
            },
            options={"mode": "search", "searcher": "random", "samples": 24},
        )
    )
