"""`dmls-ray doctor`: what it says of noise and of machines, and one real call."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from dmls_ray import load
from dmls_ray.analysis.results import Results
from dmls_ray.cli.console import Parser
from dmls_ray.cli.diagnosis import machine_lines, show_diagnosis, warnings_of
from dmls_ray.cli.doctor import PRESET
from dmls_ray.cli.request import parse_request
from dmls_ray.config.options import Until
from dmls_ray.execution.planning import plan_sweep
from dmls_ray.execution.view import ProgressConsole
from dmls_ray.records.cpu_state import CpuState
from dmls_ray.records.gpu_state import GpuState
from dmls_ray.util.errors import ConfigError
from tests.analysis.samples import results

CPU = CpuState(
    cores=8, logical=16, physical=8, load=0.4, mhz=2100.0, max_mhz=3900.0, governor="performance", throttled=0,
    power_limit_w=125.0,
)  # fmt: skip
GPU = GpuState(
    name="NVIDIA H100", mhz=1980, max_mhz=1980, reasons=0, power_limit_w=700.0, default_power_limit_w=700.0, celsius=40,
    is_ecc_on=True, uncorrected_errors=0,
)  # fmt: skip


def diagnosis(capsys: pytest.CaptureFixture[str], runs: Results, *words: str) -> str:
    request = parse_request(Parser(prog="dmls-ray doctor"), PRESET, [*words])
    plan, _ = plan_sweep(request.axes, request.options, request.workload)
    runs.until = Until(within=0.001, equivalent=0.001)
    show_diagnosis(runs, plan, request, ProgressConsole())
    return capsys.readouterr().out


def against_itself(repeats: int, second: float = 1.0, spread: float = 0.03) -> Results:
    """Runs of two seeds, whose rates differ by noise alone, or the second by a factor."""
    noise = np.random.default_rng(1).normal(0, spread, (2, repeats))

    def rate(values: dict[str, Any], repeat: int) -> float:
        seed = values["seed"]
        return 100 * (second if seed else 1.0) * math.exp(noise[seed, repeat])

    return results({"batch_per_rank": 32, "seed": [0, 1]}, rate, repeats=repeats)


def test_the_smallest_differences_follow_from_the_spread_of_the_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    runs = against_itself(12)
    shown = diagnosis(capsys, runs)
    assert "n=12: the two do not differ beyond chance" in shown
    values = {(record.config["seed"], record.repeat): record.metrics["images_per_s"] for record in runs.records}
    deviation = np.std([math.log(values[1, repeat] / values[0, repeat]) for repeat in range(12)], ddof=1)
    printed = dict(re.findall(r"^ *(\d+) repeats +([\d.]+)x \[", shown, re.MULTILINE))
    assert list(printed) == ["5", "12", "30"]
    for text, ratio in printed.items():
        n = int(text)
        # Speed and accuracy share the errors of the answer.
        size = (t.ppf(1 - 0.025 / 2, n - 1) + t.ppf(0.8, n - 1)) * deviation / math.sqrt(n)
        assert float(ratio) == pytest.approx(math.exp(size), abs=0.006)


def test_of_a_metric_the_spread_over_seeds_and_what_so_many_seeds_show_and_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = against_itself(12)
    losses = np.random.default_rng(2).normal(2.0, 0.1, (2, 12))
    for record in runs.records:
        record.metrics |= {"val_loss": losses[record.config["seed"], record.repeat], "total_s": 90.0}
    runs.judged_by = "val_loss", True
    shown = diagnosis(capsys, runs, "--metric", "val_loss")
    mean, deviation = re.findall(r"val_loss over 24 seeds: mean ([\d.]+), standard deviation ([\d.]+)", shown)[0]
    assert float(mean) == pytest.approx(losses.mean(), abs=0.006)
    assert float(deviation) == pytest.approx(losses.std(ddof=1), abs=0.006)
    printed = re.findall(r"^ *(\d+) repeats +([\d.]+)x \[.*\]  (.*) for two settings", shown, re.MULTILINE)
    assert [(repeats, cost) for repeats, _, cost in printed] == [
        ("3", "9 min 00 s"), ("5", "15 min 00 s"), ("10", "30 min 00 s"), ("30", "90 min 00 s"),
    ]  # fmt: skip
    sizes = [float(size) for _, size, _ in printed]
    assert 0 < sizes[0] < sizes[1] < sizes[2] < sizes[3] < 1, "a loss is better where it is less"


def test_of_a_metric_that_no_run_has_nothing_else_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    runs = against_itself(5)
    runs.judged_by = "val_loss", True
    shown = diagnosis(capsys, runs, "--metric", "val_loss")
    assert "--metric-regex" in shown
    assert "A/A" not in shown


def test_a_machine_that_favours_one_of_two_equal_trials_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the two differ" in diagnosis(capsys, against_itself(8, second=1.2))


def test_a_number_of_repeats_takes_the_place_of_the_time() -> None:
    options = parse_request(Parser(prog="dmls-ray doctor"), PRESET, ["--repeats", "5"]).options
    assert (options.repeats, options.until) == (5, None)
    with pytest.raises(ConfigError, match="budget=10.0 only applies to repeats=auto"):
        parse_request(Parser(prog="dmls-ray doctor"), PRESET, ["--repeats", "5", "--budget", "10s"])


def test_too_few_runs_say_nothing_of_noise(capsys: pytest.CaptureFixture[str]) -> None:
    assert "fewer than 3 repeats" in diagnosis(capsys, against_itself(2))
    failed = results({"batch_per_rank": 32, "seed": [0, 1]}, lambda values, repeat: None)
    assert diagnosis(capsys, failed).strip() == "No run ended ok, so nothing is compared."


def test_the_state_of_the_machine_is_told() -> None:
    record = against_itself(3).records[0]
    gpus = [replace(GPU, reasons=0x24, is_ecc_on=None)]
    cpu, threads, versions, gpu, link = machine_lines(record, CPU, gpus, {"0-1": False})
    assert "clock 2,100 of 3,900 MHz" in cpu
    assert threads.startswith("Threads: of a rank 1")
    assert "torch 2" in versions
    assert "throttled by power and heat" in gpu
    assert "ECC unknown" in gpu
    assert link == "GPUs 0-1: access to each other's memory off"
    unknown = CpuState(
        cores=1, logical=1, physical=None, load=0.0, mhz=None, max_mhz=None, governor="", throttled=None,
        power_limit_w=None,
    )  # fmt: skip
    assert next(machine_lines(record, unknown, [], {})).count("unknown") == 4


@pytest.mark.parametrize(
    ("cpu", "gpu", "said"),
    [
        ({"governor": "powersave", "throttled": 3}, {}, ["powersave", "3 times"]),
        ({}, {"reasons": 0x40 | 0x08}, ["heat and hardware"]),
        ({}, {"reasons": 0x01}, []),
        ({}, {"power_limit_w": 350.0, "uncorrected_errors": 2}, ["350 W", "2 memory errors"]),
        ({}, {"power_limit_w": None, "reasons": None, "uncorrected_errors": None}, []),
    ],
)
def test_what_makes_times_vary_is_a_warning(cpu: dict[str, Any], gpu: dict[str, Any], said: list[str]) -> None:
    warnings = list(warnings_of(replace(CPU, **cpu), [replace(GPU, **gpu)]))
    assert len(warnings) == len(said)
    for text, part in zip(warnings, said, strict=True):
        assert part in text


@pytest.mark.slow
def test_doctor_runs_one_configuration_against_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dmls_ray", "doctor", "--device", "cpu", "--max-repeats", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^ +\d+ repeats", done.stdout, re.MULTILINE)) == 3
    assert {record.config["seed"] for record in load(tmp_path / "results/doctor").records} == {0, 1}


def test_each_machine_of_several_lanes_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    runs = against_itself(12)
    for record in runs.records:
        record.lane = 1 + record.repeat % 2
        record.machine = {**record.machine, "host": f"host-{record.lane}"}
        record.metrics |= {"comm_ms": 3.0 * record.lane + 0.01 * record.repeat}
    said = diagnosis(capsys, runs)
    assert re.search(r"host-2: [\d.]+ \[[\d.]+, [\d.]+\] of the speed of the others, ", said)
    assert re.search(r"host-2: .* of the others, 1\.99 \[[\d., ]+\] of their time for communication, 6 blocks", said)
