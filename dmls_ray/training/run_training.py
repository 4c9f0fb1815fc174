"""`run_training`: a run on one rank, from its assignment to its result.

A launcher calls the entry point of a workload on every rank, with the process group in place. The entry point calls
`run_training` with its `TrainingTask`.
"""

from __future__ import annotations

from dmls_ray.config.training import TrainingConfig
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.engine import MakeTask, RankTrainer, Task
from dmls_ray.training.further_steps import count_operations, measure_tensors, write_trace
from dmls_ray.training.rank import Emit, RankInfo


def run_training(config: TrainingConfig, rank: RankInfo, emit: Emit, make_task: MakeTask[Task]) -> RankResult:
    """Train and evaluate one configuration on this rank.

    Args:
        config: its seed is this run's seed.
        rank: this rank. At world size above 1 the default process group exists.
        emit: takes `EpochEnded` from rank 0 after each epoch. In a prunable run all ranks send it, and stop if the
            answer is False. All ranks send `Progress` after each pass of training and of evaluation.
        make_task: makes the workload's task from configuration, rank and device.

    Raises:
        ConfigError, UnknownNameError, UserCodeError, DataError: the model or the data cannot be built.
        torch.OutOfMemoryError: the device's memory did not suffice.
    """
    trainer = RankTrainer(config, rank, make_task)
    try:
        result = trainer.run(emit)
        with trainer.clock.untimed():
            if rank.is_traced:
                write_trace(trainer)
            measure_tensors(trainer, result)
            count_operations(trainer, result)
        result.metrics["instruments_s"] = trainer.clock.instruments_s
    finally:
        trainer.task.close()
    return result
