"""What is seen of a script: its steps with their samples, losses and parts, and the number format."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from dmls_ray.analysis.findings.same_training import ROUNDING
from dmls_ray.records.outcome import Outcome
from dmls_ray.training.precision import slow_precisions
from tests.workloads.script.conftest import BEGIN, LOOP, Runner

SCALED = """
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""

ITERABLE = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield torch.randn(8), torch.randint(0, 4, ()).item()

for x, y in DataLoader(Stream(), 12):
    step(x, y)
"""

WORKERS = """
for x, y in DataLoader(data, 16, num_workers=2):
    step(x, y)
"""

CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 4)
    def forward(self, x):
        return self.head(checkpoint(self.inner, x, use_reentrant=False))

model = Deep()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

TEACHER = """
for epoch in range(100):
    for x, y in loader:
        with torch.no_grad():
            model(x)
        step(x, y)
"""


@pytest.mark.parametrize(
    ("loop", "samples", "number_format"),
    [
        (SCALED, 16, "autocast bfloat16"),
        (ITERABLE, 12, "float32"),
        (CHECKPOINTED + LOOP, 16, "float32"),
        (TEACHER, 16, "float32"),
    ],
)
def test_samples_and_number_format_of_usual_loops_are_seen(
    run: Runner, loop: str, samples: int, number_format: str
) -> None:
    result = run.one(BEGIN + loop)
    assert result.outcome is Outcome.OK, result.reason
    assert result.run.metrics["steps"] == 20
    assert result.values["samples_per_step"] == samples
    assert result.run.facts["counted_by"] == "loader and model agree"
    assert result.run.facts["number_format"] == number_format
    assert 0 < result.run.metrics["first_loss"] < 10  # as it was before a scaler
    assert result.values["step_ms_p50"] > 0


def test_three_steps_are_enough_to_see_samples(run: Runner) -> None:
    result = run.one(BEGIN + LOOP, steps=3)
    assert result.values["samples_per_s"] > 0
    assert result.run.facts["counted_by"] == "loader and model agree"


def test_workers_of_a_loader_are_not_taken_for_the_script(run: Runner) -> None:
    result = run.one(BEGIN + WORKERS, steps=10)
    assert (result.outcome, result.run.metrics["steps"]) == (Outcome.OK, 10)
    assert result.values["samples_per_step"] == 16


@pytest.mark.slow
def test_steps_of_a_compiled_model_are_seen_and_the_compilation_is_warm_up(run: Runner) -> None:
    result = run.one(BEGIN + "model = torch.compile(model)\n" + LOOP, steps=30)
    assert (result.outcome, result.run.metrics["steps"]) == (Outcome.OK, 30), result.reason
    assert result.values["samples_per_step"] == 16
    assert result.values["step_ms_p95"] < 500


def test_losses_of_the_first_steps_tell_accumulation_from_another_learning_rate(run: Runner) -> None:
    whole = BEGIN.replace("nn.Linear(8, 4)", "nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 4))")
    accumulated = """
loader = DataLoader(data, 4)
for number, (x, y) in enumerate(loader, 1):
    (nn.functional.cross_entropy(model(x), y) / 4).backward()
    if number % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
    one = run.one(whole + LOOP)
    four = run.one(whole + accumulated, steps=10)
    faster = run.one(whole.replace("lr=0.1", "lr=0.2") + LOOP)
    assert [result.values["samples_per_step"] for result in (one, four, faster)] == [16, 16, 16]
    assert four.values["backward_passes"] == 4
    base = one.values["early_loss"]
    assert four.values["early_loss"] * 4 == pytest.approx(base, rel=ROUNDING)
    assert faster.values["early_loss"] != pytest.approx(base, rel=ROUNDING)
    assert faster.run.metrics["first_loss"] == pytest.approx(one.run.metrics["first_loss"], rel=ROUNDING)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_memory_is_that_of_the_allocator_and_autocast_is_seen(run: Runner) -> None:
    loop = """
model.cuda()
big = torch.empty(2**26, device="cuda")
for epoch in range(100):
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    result = run.one(BEGIN + loop, device="cuda")
    assert (result.outcome, result.run.metrics["steps"]) == (Outcome.OK, 20), result.reason
    assert 256 < result.values["peak_mem_mib"] < 400
    assert result.run.facts["number_format"] == "autocast bfloat16"
    assert result.values["samples_per_step"] == 16
    assert result.values["backward_ms"] > 0


EVALUATED = """
test_data = TensorDataset(torch.randn(512, 8), torch.randint(0, 4, (512,)))
test_loader = DataLoader(test_data, 64)

def evaluate(tested):
    tested.eval()
    with GRADIENTS:
        for x, y in test_loader:
            tested(x)
        time.sleep(0.4)
    tested.train()

"""
"""Tests take hundreds of times as long as a step."""


@pytest.mark.parametrize(
    "tested",
    [
        "wrapped = nn.Sequential(model)\ntested, GRADIENTS = model, torch.no_grad()",
        "tested, GRADIENTS = nn.Linear(8, 4).requires_grad_(False), torch.no_grad()  # averaged weights, say",
        "tested, GRADIENTS = model, torch.enable_grad()",
    ],
)
def test_a_test_in_the_middle_of_an_epoch_is_in_no_rate(run: Runner, tested: str) -> None:
    lines = """
for number, (x, y) in enumerate(loader):
    step(x, y)
    if number % 5 == 4:
        evaluate(tested)
"""
    result = run.one(BEGIN + EVALUATED + tested + lines, steps=16)
    assert result.outcome is Outcome.OK, result.reason
    assert result.values["samples_per_step"] == 16
    assert result.values["step_ms_p95"] < 400


def test_a_second_stage_of_the_training_goes_on_with_the_steps(run: Runner) -> None:
    source = """
for epoch in range(2):
    for x, y in loader:
        step(x, y)
second = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(100):
    for x, y in loader:
        second.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        second.step()
"""
    result = run.one(BEGIN + source, steps=40)
    assert (result.outcome, result.run.metrics["steps"]) == (Outcome.OK, 40)
    # Ten until it was noticed, in a step of their own, after the warm-up.
    counted = result.run.metrics["counted_steps"]
    assert result.values["backward_passes"] == pytest.approx((counted + 9) / counted)


def test_lists_of_images_and_descriptions_have_as_many_samples_as_items(run: Runner) -> None:
    source = """
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, images, targets):
        return sum(self.layer(image).mean() for image in images)

model = Detector()
samples = [(torch.randn(3, 4, 4), {"box": number}) for number in range(512)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, targets in DataLoader(samples, 8, collate_fn=lambda batch: tuple(zip(*batch))):
    model(images, targets).backward()
    optimizer.step()
"""
    result = run.one(BEGIN + source)
    assert result.values["samples_per_step"] == 8
    assert result.run.facts["counted_by"] == "loader and model agree"


SLOW_ON_FIRST_RANK = """
for epoch in range(100):
    for x, y in loader:
        time.sleep(0.45 if os.environ.get("RANK") == "0" else 0.0)
        print("made")
        step(x, y)
"""


def test_without_a_given_number_slow_steps_are_fewer_and_equally_many_on_all_ranks(run: Runner) -> None:
    first, second = run.ranks(BEGIN + SLOW_ON_FIRST_RANK, world_size=2, steps="auto")
    assert (first.outcome, second.outcome) == (Outcome.OK, Outcome.OK)
    logs = [(run.folder / f"rank{rank}.log").read_text() for rank in (0, 1)]
    assert [log.count("made") for log in logs] == [10, 10]
    assert "last_loss" not in first.run.metrics  # of another step than that of other runs


def test_a_model_that_is_compiled_to_no_graph_is_named(run: Runner) -> None:
    source = """
class Eager(nn.Linear):
    @torch.compiler.disable
    def forward(self, x):
        return super().forward(x)

model = Eager(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model = torch.compile(model)
"""
    result = run.one(BEGIN + source + LOOP)
    assert result.outcome is Outcome.OK, result.reason
    assert result.run.facts["without_effect"] == "torch.compile (no graph was compiled)"
    compiled = run.one(BEGIN + 'model = torch.compile(model, backend="eager")\n' + LOOP)
    assert "without_effect" not in compiled.run.facts


def test_a_test_with_backward_passes_between_micro_batches_trains_nothing(run: Runner) -> None:
    source = """
others = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,))), 8)

def attack():
    kept = [parameter.grad.clone() for parameter in model.parameters()]
    model.eval()
    for x, y in others:
        model.zero_grad()
        nn.functional.cross_entropy(model(x.requires_grad_()), y).backward()
    model.train()
    for parameter, gradient in zip(model.parameters(), kept):
        parameter.grad = gradient

for epoch in range(100):
    for number, (x, y) in enumerate(loader):
        nn.functional.cross_entropy(model(x), y).backward()
        if number % 4 == 2:
            attack()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
"""
    result = run.one(BEGIN + source)
    assert result.outcome is Outcome.OK, result.reason
    assert (result.values["samples_per_step"], result.values["backward_passes"]) == (32, 2)
    assert result.run.facts["time_unknown"]


SHUFFLED = """
from torch.utils.data.distributed import DistributedSampler

class Own(DistributedSampler):
    def __iter__(self):
        self.seed += 1
        return super().__iter__()

kind = Own if {how!r} == "own" else DistributedSampler
sampler = kind(data, num_replicas=1, rank=0, shuffle={how!r} != "fixed")
other = DistributedSampler(data, num_replicas=1, rank=0)
for epoch in range(100):
    if {how!r} in ("set", "looks first"):
        sampler.set_epoch(epoch)
    loader = DataLoader(data, 16, sampler=sampler)
    if {how!r} == "looks first":
        mean = sum(x.mean() for x, y in loader)
    for x, y in loader:
        step(x, y)
    for x, y in DataLoader(data, 16, sampler=other):
        model(x)
"""


@pytest.mark.parametrize("how", ["forgotten", "set", "looks first", "own", "fixed"])
def test_a_sampler_that_shuffles_and_whose_epoch_stays_the_same_is_named_where_passes_train(
    run: Runner, how: str
) -> None:
    result = run.one(BEGIN + SHUFFLED.format(how=how), steps=40)
    assert result.outcome is Outcome.OK, result.reason
    assert ("set_epoch" in result.run.facts.get("without_effect", "")) == (how == "forgotten")


PINNED = """
torch.set_float32_matmul_precision("medium")
for epoch in range(100):
    for x, y in DataLoader(data, 16, pin_memory=True):
        step(x, y)
"""


def test_pinned_memory_and_a_precision_that_this_processor_does_not_have_are_named(run: Runner) -> None:
    if torch.cuda.is_available() or not slow_precisions(["amp-bf16"]):
        pytest.skip("this machine has units for what the script asks for")
    result = run.one(BEGIN + PINNED)
    assert result.outcome is Outcome.OK, result.reason
    assert result.run.facts["without_effect"] == (
        "pin_memory (no GPU is there); float32_matmul_precision=medium (products have the error of fp32)"
    )


HOOKED = """
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 4))
model.register_comm_hook(PowerSGDState(None), powerSGD_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_a_communication_hook_that_begins_after_the_steps_of_the_run_is_named(run: Runner) -> None:
    results = run.ranks(BEGIN + HOOKED + LOOP, world_size=2)
    assert [item.outcome for item in results] == [Outcome.OK, Outcome.OK], [item.reason for item in results]
    assert {item.run.facts["without_effect"] for item in results} == {"powerSGD_hook (begins after 1000 passes)"}


@pytest.mark.parametrize(
    "asked",
    ['torch.backends.mkldnn.matmul.fp32_precision = "bf16"', "torch.set_default_device('meta')"],
)
def test_a_precision_that_cannot_be_read_ends_no_run(run: Runner, asked: str) -> None:
    result = run.one(
        BEGIN + LOOP.replace("range(100)", "range(1)") + f'torch.set_float32_matmul_precision("high")\n{asked}\n',
        steps=16,
    )
    assert result.outcome is Outcome.OK, result.reason


WRAPPED = """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper
model.register_comm_hook(PowerSGDState(None), fp16_compress_wrapper(powerSGD_hook))
"""


def test_a_hook_that_compresses_before_another_one_begins_has_an_effect(run: Runner) -> None:
    source = HOOKED.replace("model.register_comm_hook(PowerSGDState(None), powerSGD_hook)", WRAPPED)
    results = run.ranks(BEGIN + source + LOOP, world_size=2)
    assert [item.outcome for item in results] == [Outcome.OK, Outcome.OK], [item.reason for item in results]
    assert not any("without_effect" in item.run.facts for item in results)


COPIED = """
import copy

for number, (x, y) in enumerate(batch for _ in range(100) for batch in loader):
    step(x, y)
    if number == 14:
        copy.deepcopy(model)(x)
        torch.save(model, FILE)
        torch.save(nn.Sequential(model), FILE + "-wrapped")
"""


def test_a_model_that_is_observed_is_copied_and_saved_as_a_whole(run: Runner) -> None:
    file = run.folder / "model.pt"
    result = run.one(BEGIN + COPIED.replace("FILE", repr(str(file))))
    assert result.outcome is Outcome.OK, result.reason
    read = """
import sys, torch
model = torch.load(sys.argv[1], weights_only=False)
print(tuple(model(torch.zeros(2, 8)).shape), "dmls_ray" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", read, file], capture_output=True, text=True, check=False)
    assert done.stdout == "(2, 4) False\n", done.stderr
