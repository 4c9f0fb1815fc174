"""What does the way ranks are started do to the time, memory and accuracy of training?

Ray's worker group keeps its ranks between runs. torch.multiprocessing (spawn), torchrun and mpirun start one
interpreter per rank for each run; inline is one such process without DDP. All call the same training function. mpirun
and --backend mpi need pip install 'dmls_ray[mpi]'.
"""

from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(
        Preset(
            name="launcher",
            question=__doc__,
            has_modules=False,
            axis="launcher",
            axes={
                "launcher": ["ray", "inline", "spawn", "torchrun", "mpirun"],
                "batch_per_rank": [32],
                "world_size": [1, 2],
            },
        )
    )
