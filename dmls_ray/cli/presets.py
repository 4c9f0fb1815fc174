"""`PRESETS`: the questions that `dmls-ray sweep NAME` and the scripts in `sweeps/` ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from dmls_ray.config.axes import Range
from dmls_ray.config.runtime import LauncherName
from dmls_ray.config.sweep_file import Preset
from dmls_ray.workloads.grayscale.workload import IMPLEMENTATIONS

_PRESETS = (
    Preset(
        name="accumulation",
        question="""
            What does gradient accumulation do to the time, memory and accuracy of training?

            At a fixed batch_per_rank, more accumulation steps make a larger global batch. Gradients are reduced
            once a step. Pass --global-batch to fix the global batch instead: then batch_per_rank shrinks, and only
            time and memory should change.
            """,
        axis="accum_steps",
        axes={"accum_steps": [1, 2, 4, 8], "batch_per_rank": [16], "world_size": [2]},
    ),
    Preset(
        name="backend",
        question="""
            What does the communication library do to the time, memory and accuracy of training on several ranks?

            A backend that this machine lacks is a skipped row with the reason. One rank communicates with no other,
            so world_size 1 is left out; add it with --world-size 1 2 for the speed-up.
            """,
        axis="backend",
        axes={"backend": ["gloo", "nccl"], "batch_per_rank": [32, 128], "world_size": [2]},
    ),
    Preset(
        name="batch_size",
        question="""
            What does the batch size do to the time, memory and accuracy of training, on one rank and on two?

            Weak scaling: batch_per_rank is the same for all world sizes, so global_batch grows with the ranks. Pass
            --global-batch for strong scaling, and --lr-scaling linear to scale the learning rate with the global
            batch.
            """,
        axis="batch_per_rank",
        axes={"batch_per_rank": [16, 32, 64, 128], "world_size": [1, 2]},
    ),
    Preset(
        name="critical_batch",
        question="""
            Up to which batch size do larger batches save steps to a target accuracy, and which batch gets there
            first?

            Batch size and learning rate are one question: each batch is judged at its best learning rate. lr is
            scaled by the square root of the batch, and several multiples of it are tried; pass others with --lr,
            and --lr-scaling none for plain values. Half of the repeats choose the learning rate, the others are
            reported. --noise-scale --accum-steps 2 also estimates the gradient noise scale, which predicts the
            critical batch.
            """,
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
    ),
    Preset(
        name="grayscale",
        question="""
            How fast can images be converted to grayscale, from two Python loops to a CUDA kernel?

            Each implementation computes 0.2989 R + 0.5870 G + 0.1140 B from uint8 to uint8. An implementation that
            this machine lacks is a skipped row with the reason. Images are interleaved (height x width x 3), as in
            files; --layout planar uses 3 x height x width. --images sets the working set: one that is several times
            as large as the last-level cache is read from memory. --threads-per-rank limits the threads of an
            implementation.
            """,
        axis="implementation",
        workload="grayscale",
        axes={"implementation": list(IMPLEMENTATIONS)},
    ),
    Preset(
        name="grid",
        description="""
            Any question: give several values to any flags, and every combination is run.

            Example: python sweeps/grid.py --optimizer adam sgd --lr 0.001 0.01 --batch-per-rank 32 64
            """,
        axes={"batch_per_rank": [32], "world_size": [1]},
    ),
    Preset(
        name="launcher",
        question="""
            What does the way ranks are started do to the time, memory and accuracy of training?

            Ray's worker group keeps its ranks between runs. torch.multiprocessing (spawn), torchrun and mpirun
            start one interpreter per rank for each run; inline is one such process without DDP. All call the same
            training function. mpirun and --backend mpi need pip install 'dmls_ray[mpi]'.
            """,
        axis="launcher",
        axes={
            "launcher": list(get_args(LauncherName)),
            "batch_per_rank": [32],
            "world_size": [1, 2],
        },
    ),
    Preset(
        name="machines",
        question="""
            What do more machines, and more ranks on each, do to the time and accuracy of training?

            Weak scaling: batch_per_rank is fixed, so global_batch grows with the ranks; pass --global-batch for
            strong scaling. Start Ray on each machine first (ray start --head here, ray start --address=... on the
            others) and pass --address auto. A run that needs more machines than there are is a skipped row with the
            reason. Round trip and bandwidth of the link are measured before each run, and shown next to the
            communication time that training did not overlap.
            """,
        axis="machines",
        axes={"machines": [1, 2], "ranks_per_machine": [1, 2], "batch_per_rank": [32]},
        options={"layout": "scaling"},
    ),
    Preset(
        name="optimizer",
        question="""
            What does the optimizer do to the time, memory and accuracy of training, at one learning rate?

            No learning rate suits all optimizers: pass several with --lr, and compare each optimizer at its best
            one. Without weight decay, adamw is the same as adam; add --weight-decay 0.01 to compare them.
            """,
        axis="optimizer",
        axes={"optimizer": ["adam", "adamw", "sgd", "rmsprop"], "batch_per_rank": [32], "world_size": [1]},
    ),
    Preset(
        name="precision",
        question="""
            What does the number format do to the time, memory and accuracy of training?

            fp32 is compared with automatic mixed precision in bf16 (add fp16 with --precision), and with TF32 on
            GPUs. A format that the processor has no units for also runs, but slower; a note says so before the start.
            """,
        axis="precision",
        axes={"precision": ["fp32", "tf32", "amp-bf16"], "batch_per_rank": [64], "world_size": [1]},
    ),
    Preset(
        name="quantization",
        question="""
            What does int8 do to accuracy, to the size of a checkpoint, and to the time of training and of
            inference?

            fp32 is compared with dynamic and static quantization after training, and with quantization-aware
            training, which is converted to int8 and tested after every epoch. Inference is timed at
            --inference-batch samples for fp32 (eager and compiled) and for int8 (compiled).
            """,
        axis="quantization",
        axes={
            "quantization": ["off", "dynamic", "static", "qat"],
            "batch_per_rank": [32],
            "world_size": [1],
            "epochs": [3],
            "inference_batch": [32],
            "device": ["cpu"],
        },
    ),
    Preset(
        name="regularization",
        question="""
            What does each regulariser do to accuracy, and to the gap between training and test?

            One regulariser is added at a time: dropout, batch normalisation, label smoothing, weight decay, L1,
            flips and crops, early stopping. No times are compared, so runs share all ranks; --times on compares them.
            A flag for any of them (--dropout 0 0.3 0.5) runs that grid instead. For a
            model with its own dropout, such as simplecnn, dropout=0.3 replaces its rate; a note gives both rates.
            """,
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
        options={"times": "off"},
    ),
    Preset(
        name="search",
        question="""
            Which configuration trains best? Many are tried side by side, and poor ones are stopped after an epoch
            or more.

            Runs share the machine, so their times are not comparable: a search is for accuracy. --searcher optuna (pip
            install 'dmls_ray[search]') chooses configurations by the results of earlier runs; --scheduler none
            stops no run early. At its end a search prints two commands for the best configuration: one trains it
            with other seeds, one keeps its weights.
            """,
        axes={
            "lr": Range(1e-4, 1e-1, log=True),
            "batch_per_rank": [16, 32, 64],
            "optimizer": ["adam", "adamw", "sgd", "rmsprop"],
            "dropout": Range(0.0, 0.5),
            "epochs": [8],
        },
        options={"search": True, "searcher": "random", "trials": 24},
    ),
    Preset(
        name="world_size",
        question="""
            What do more ranks do to the time, memory and accuracy of training?

            Weak scaling by default: batch_per_rank is fixed, so global_batch grows with the ranks. Pass
            --global-batch for strong scaling: then batch_per_rank shrinks as ranks are added, and every world size
            trains on the same samples in the same steps.
            """,
        axis="world_size",
        axes={"world_size": [1, 2], "batch_per_rank": [64]},
    ),
)

PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in _PRESETS}
"""By name."""
