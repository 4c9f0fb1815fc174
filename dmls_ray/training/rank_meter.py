"""`RankMeter`: what one rank of a run measures, whether it trains a model, calls a function or runs a script."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dmls_ray.records.run_events import RankResult
from dmls_ray.training.clocks import PhaseClock, StepTimer
from dmls_ray.training.energy import PowerMeter
from dmls_ray.training.marks import device_name, synchronize
from dmls_ray.training.memory import MemoryMeter
from dmls_ray.training.rank import RankInfo
from dmls_ray.training.rank_agreement import AgreementMeter
from dmls_ray.training.utilization import UtilizationSampler


class RankMeter:
    """The instruments of one rank. The clock runs from the start; enter it while the rank trains.

    Args:
        rank: this rank.
    """

    memory: MemoryMeter
    timer: StepTimer

    def __init__(self, rank: RankInfo) -> None:
        self.rank = rank
        self.device = torch.device(rank.device)
        self.clock = PhaseClock(self.device, rank.clock)
        self.agreement: AgreementMeter | None = None
        """What shows whether the ranks train one model; None at world size 1."""

    def begin_memory(self) -> None:
        """Measure memory from here on. On a GPU this starts CUDA, which reads its environment variables then."""
        self.memory = MemoryMeter(self.device)

    def time_steps(self, warmup_steps: int, on_warm: Callable[[], None] = lambda: None) -> StepTimer:
        """The timer of the steps, as `StepTimer` describes its arguments, with the power while steps are counted."""
        self.timer = StepTimer(self.device, warmup_steps, on_warm, PowerMeter.of(self.rank))
        return self.timer

    def __enter__(self) -> RankMeter:
        # Not earlier: the collectives of set-up say nothing of the training.
        if self.rank.world_size > 1:
            self.agreement = AgreementMeter()
        self._utilization = UtilizationSampler(self.device)
        self._utilization.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._utilization.__exit__()

    def read(self, data_bytes: int = 0, *, with_steps: bool = True) -> RankResult:
        """What every kind of run measures, up to here.

        Args:
            data_bytes: size of the data set that lies on the device.
            with_steps: whether it is known what a step takes.
        """
        synchronize(self.device)
        result = RankResult()
        result.run.device = device_name(self.device)
        result.run.backend = self.rank.backend or ""
        result.add(self.clock.read())
        result.add(self.memory.read(data_bytes))
        result.add(self.timer.power.read())
        result.add(self._utilization.read())
        result.utilization = self._utilization.series
        if with_steps:
            result.add(self.timer.percentiles())
            result.step_ms_quantiles = self.timer.quantiles()
        # After the memory was read, since comparing needs some.
        if self.agreement is not None:
            with self.clock.untimed():
                result.add(self.agreement.read())
            result.parameter_sketch = self.agreement.sketch
            result.sampled_parameters = self.agreement.sampled
        result.metrics["instruments_s"] = self.clock.instruments_s
        return result
