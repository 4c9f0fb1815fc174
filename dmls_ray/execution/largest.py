"""`LargestFit`: the largest value of a field with which runs fit into memory, found by short runs.

The value is doubled until a run does not fit, and then found by bisection. On a CPU, where the kernel would end
processes, a run is started only if it fits by the growth of memory between the runs so far, which also tells where the
edge is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dmls_ray.analysis.words import count_noun
from dmls_ray.config.axes import Axes
from dmls_ray.config.options import Options
from dmls_ray.execution.planning import results_location
from dmls_ray.execution.prober import Prober
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.uri import below

FOLDER = "probes"
"""Folder of the short runs, in the results folder."""
_CLOSE = 1.05
"""Ratio of two values up to which nothing between them is tried."""
_MOST_STEP = 8
"""Ratio of a value to the largest that fits, at most: memory may grow otherwise beyond."""
_USED_SHARES = 0.8, 0.92
"""Shares of the free memory that a run may be expected to take: at first, and once such a run has shown what is left,
since every start of ranks leaves a little less."""


@dataclass(frozen=True)
class Probe:
    """The short runs of one value, one for each combination of the other fields."""

    value: int
    reason: str
    """Why it does not fit; empty if it does."""
    growth_mib: float | None = None
    """What its ranks added to the memory of a machine, on a CPU."""
    free_mib: float = 0.0
    """The free memory when they began."""
    samples: float | None = None
    """Samples of a step of all ranks."""


class LargestFit:
    """A search for the largest value that fits.

    Args:
        prober: makes the short runs.
        axes: the other fields.
        name: the field.
    """

    def __init__(self, prober: Prober, axes: Axes, name: str) -> None:
        self._prober, self._name = prober, name
        self._axes = {**axes, **{other: (value,) for other, value in prober.workload.probe.items()}}
        options = prober.options
        where = below(str(results_location(options)), FOLDER)
        self._options = Options(
            name=FOLDER, out=where, repeats=1, give_up_after=1, address=options.address,
            oversubscribe=options.oversubscribe, verbose=options.verbose, tensorboard="off",
        )  # fmt: skip
        self._fitting: list[Probe] = []
        self.probes = 0

    def find(self, start: int) -> int:
        """The largest value, from the first one to try.

        Raises:
            ConfigError: not even 1 fits.
        """
        too_large: Probe | None = None
        value = start
        while True:
            probe = self._probe(value)
            if probe.reason:
                too_large = probe
            elif self._fitting and probe.samples and probe.samples == self._fitting[-1].samples:
                too_large = replace(probe, reason="a step has no more samples then: the data ends")
                break
            else:
                self._fitting.append(probe)
            if not self._fitting:
                if value == 1:
                    raise ConfigError(f"{self._name} max: not even 1 fits: {probe.reason}.")
                value //= 2
                continue
            following = self._following(too_large)
            if following is None:
                break
            value = following
        largest = self._fitting[-1].value
        why = f"; {too_large.value}: {too_large.reason}" if too_large else ""
        self._prober.view.note(f"{self._name} max is {largest}, of {count_noun(self.probes, 'probe')}{why}.")
        return largest

    def _following(self, too_large: Probe | None) -> int | None:
        """The next value to try; None where the largest that fits is known closely."""
        low = self._fitting[-1].value
        high = low * _MOST_STEP if too_large is None else (low + too_large.value) // 2
        edges = [edge for edge in map(self._edge, _USED_SHARES) if edge is not None]
        if not edges:
            edges = [2 * low if too_large is None else high]
        larger = [min(edge, high) for edge in edges]
        return next((value for value in larger if value > max(low, low * _CLOSE - 1)), None)

    def _edge(self, share: float) -> int | None:
        """The largest value whose run takes a share of the free memory, by the growth of memory between the last two.

        After one run all that it took is counted as growth, so that the next one fits. None where that is not known.
        """
        nothing = Probe(0, "", growth_mib=0.0)
        before, last = [nothing, nothing, *self._fitting][-2:]
        if before.growth_mib is None or last.growth_mib is None or last.value == before.value:
            return None
        per_value = (last.growth_mib - before.growth_mib) / (last.value - before.value)
        left_mib = last.free_mib * share - last.growth_mib
        return last.value + int(left_mib / per_value) if per_value > 0 else None

    def _probe(self, value: int) -> Probe:
        """A value, which is run unless it is known not to fit."""
        edge = self._edge(_USED_SHARES[-1])
        if edge is not None and value > edge:
            return Probe(value, f"it would not fit into {self._fitting[-1].free_mib:,.0f} MiB of free memory")
        self.probes += 1
        return self._run(value)

    def _run(self, value: int) -> Probe:
        """Run the trials of a value once."""
        results, _ = self._prober.measure({**self._axes, self._name: (value,)}, self._options)
        records = [record for record in results.records if record.outcome is not Outcome.SKIPPED]
        if not records:
            skipped = next(iter(results.records))
            raise ConfigError(f"{self._name} max: no run is possible: {skipped.reason}")
        failed = [record for record in records if record.outcome is not Outcome.OK]
        reason = failed[0].reason or failed[0].outcome.value if failed else ""
        samples = [record.metrics.get("samples_per_step") for record in records]
        return Probe(
            value,
            reason,
            growth_mib=_growth(records),
            free_mib=min((record.metrics.get("free_mem_mib", 0.0) for record in records), default=0.0),
            samples=max((item for item in samples if item), default=None),
        )


def _growth(records: list[RunRecord]) -> float | None:
    """The most that the ranks of one run added to the memory of one machine, in MiB; None where it was not measured."""
    growths = []
    for record in records:
        ranks = int(record.config.get("ranks_per_machine") or record.config.get("world_size", 1))
        if record.device != "cpu" or "host_mem_mib" not in record.metrics:
            return None
        growths.append(ranks * record.metrics["host_mem_mib"])
    return max(growths, default=None)
