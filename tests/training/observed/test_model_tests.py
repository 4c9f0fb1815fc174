"""Which times of a loop are tests of its model, and which batches were read for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dmls_ray.training.clocks import StepTimer
from dmls_ray.training.compat import around_backward_passes, around_loader_waits, batch_sizes_noted
from dmls_ray.training.observed.contents import content_of
from dmls_ray.training.observed.evaluations import Meaning
from dmls_ray.training.observed.loaders import batch_of
from dmls_ray.training.observed.model_inputs import ModelInputs
from dmls_ray.training.observed.model_tests import ModelTests
from dmls_ray.training.observed.step_under_way import StepUnderWay

TEST_S = 0.05


class Loop:
    """A training loop with a loader for training and one for tests, and what is seen of it."""

    def __init__(self, meaning: Meaning = "auto") -> None:
        self.cpu = torch.device("cpu")
        self.timer = StepTimer(self.cpu, 0)
        self.read_s = 0.0
        """Seconds in `read` so far."""
        self.under_way = StepUnderWay()
        self.tests = ModelTests(self.timer, self.under_way, ModelInputs(), meaning)
        self.model = nn.Linear(2, 1)
        self.tests.modes.watch([self.model])
        self.train = DataLoader(TensorDataset(torch.ones(32, 2)), 4)
        self.test = DataLoader(TensorDataset(torch.ones(64, 2)), 8)

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        self.tests.forward_began(with_gradients=torch.is_grad_enabled(), leaves=[x])
        return self.model(x).sum()

    def step(self, x: torch.Tensor) -> None:
        self.compute(x).backward()
        self.tests.gradients_applied()
        self.under_way.gradients_applied(by_another=False)
        self.timer.step()

    def read(self, batches: Iterable[list[torch.Tensor]]) -> None:
        """Compute on all of them, for `TEST_S` in all."""
        began = time.perf_counter()
        for (x,) in batches:
            self.compute(x)
            time.sleep(TEST_S / 8)
        self.read_s += time.perf_counter() - began

    def left_out_s(self, loop: Callable[[Loop], None]) -> float:
        """Seconds that are left out of the steps of a loop."""

        def ended(iterator: object, batch: object) -> None:
            content = content_of(batch)
            self.tests.batch_read(iterator, None if batch is None else batch_of(iterator, content), content.leaves)

        def began(iterator: object) -> None:
            self.tests.read_began(iterator, with_gradients=torch.is_grad_enabled())

        self.timer.begin_epoch()
        with (
            around_loader_waits(began, ended),
            batch_sizes_noted(),
            around_backward_passes(self.backward_began, lambda: None),
        ):
            loop(self)
        self.timer.end_epoch()
        return self.timer.left_out_ms / 1e3

    def backward_began(self, _: object, __: object) -> None:
        if self.tests.backward_began():
            self.under_way.attack_began()
        self.under_way.backward_began(None, [])

    @property
    def loaded(self) -> list[int]:
        """Sizes of the batches that training read."""
        return [batch.size for batch in self.under_way.seen.batches]


def evaluates_in_evaluation(loop: Loop) -> None:
    for _ in range(2):
        for (x,) in loop.train:
            loop.step(x)
        loop.model.eval()
        loop.read(loop.test)
        loop.model.train()
    loop.step(x)


def evaluates_without_gradients(loop: Loop) -> None:
    for tested in (loop.test, loop.test, []):
        for (x,) in loop.train:
            loop.step(x)
        with torch.no_grad():
            loop.read(tested)


def evaluates_within_an_epoch(loop: Loop) -> None:
    for number, (x,) in enumerate(loop.train):
        loop.step(x)
        if number in (2, 4):
            with torch.no_grad():
                loop.read(loop.test)


def evaluates_in_evaluation_without_a_loader(loop: Loop) -> None:
    for number, (x,) in enumerate(loop.train):
        loop.step(x)
        if number in (2, 4):
            loop.model.eval()
            loop.read([[torch.ones(2, 2)]] * 8)
            loop.model.train()


@pytest.mark.parametrize(
    "loop",
    [
        evaluates_in_evaluation,
        evaluates_without_gradients,
        evaluates_within_an_epoch,
        evaluates_in_evaluation_without_a_loader,
    ],
)
def test_two_tests_are_left_out_and_their_batches_with_them(loop: Callable[[Loop], None]) -> None:
    seen = Loop()
    assert seen.left_out_s(loop) == pytest.approx(seen.read_s, rel=0.1)
    assert set(seen.loaded) == {4}


def attacks_in_evaluation(loop: Loop) -> None:
    """Each of two tests has backward passes, and no optimizer applies them."""
    for number, (x,) in enumerate(loop.train):
        if number in (2, 4):
            began = time.perf_counter()
            loop.model.eval()
            for (tested,) in loop.test:
                loop.compute(tested).backward()
                time.sleep(TEST_S / 8)
            loop.model.train()
            loop.read_s += time.perf_counter() - began
        loop.step(x)


def test_a_test_with_backward_passes_is_noted_and_left_out_by_the_users_word_alone() -> None:
    unsure, sure = Loop(), Loop("test")
    assert unsure.left_out_s(attacks_in_evaluation) == 0
    assert [(item.is_counted, item.data) for item in unsure.tests.found] == [(True, {64})] * 2
    seconds = sum(item.time.ended - item.time.began for item in unsure.tests.found)
    assert seconds == pytest.approx(unsure.read_s, rel=0.1)
    assert sure.left_out_s(attacks_in_evaluation) == pytest.approx(sure.read_s, rel=0.1)
    assert unsure.under_way.seen.of_test == sure.under_way.seen.of_test == 16


def test_a_model_that_is_trained_in_evaluation_mode_is_not_attacked() -> None:
    def frozen(loop: Loop) -> None:
        loop.model.eval()
        for (x,) in loop.train:
            loop.step(x)

    seen = Loop()
    assert seen.left_out_s(frozen) == 0
    assert (seen.tests.found, seen.under_way.seen.of_test) == ([], 0)


def reads_slowly(loop: Loop) -> None:
    for (x,) in loop.train:
        time.sleep(TEST_S / 8)
        loop.step(x)


def trains_in_evaluation(loop: Loop) -> None:
    loop.model.eval()
    reads_slowly(loop)


def conditions_on_itself(loop: Loop) -> None:
    for (x,) in loop.train:
        with torch.no_grad():
            loop.read([[x]])
        loop.step(x)


def rolls_out_in_evaluation(loop: Loop) -> None:
    for number, (x,) in enumerate(loop.train):
        if number:  # a rollout on the first batch of a pass is taken for a test
            loop.model.eval()
            with torch.no_grad():
                loop.read([[x]])
            loop.model.train()
        loop.step(x)


def reads_all_first(loop: Loop) -> None:
    for _ in range(2):
        batches = [*loop.train]
        time.sleep(TEST_S)
        for (x,) in batches:
            loop.step(x)


def plays_before_it_trains(loop: Loop) -> None:
    for _ in range(2):
        with torch.no_grad():
            loop.read([[torch.ones(4, 2)]] * 8)
        for (x,) in loop.train:
            loop.step(x)


def reads_one_ahead(loop: Loop) -> None:
    for _ in range(2):
        iterator = iter(loop.train)
        (x,) = next(iterator)
        for (following,) in iterator:
            with torch.no_grad():
                loop.read([[x]])
            loop.step(x)
            x = following


@pytest.mark.parametrize(
    "loop",
    [
        reads_slowly,
        trains_in_evaluation,
        conditions_on_itself,
        rolls_out_in_evaluation,
        reads_all_first,
        plays_before_it_trains,
        reads_one_ahead,
    ],
)
def test_reading_rollouts_and_passes_without_gradients_are_training(loop: Callable[[Loop], None]) -> None:
    seen = Loop()
    # The first backward pass in evaluation mode tells that the mode says nothing.
    assert seen.left_out_s(loop) < TEST_S / 8
    assert set(seen.loaded) == {4}
    assert sum(seen.loaded) % 32 == 0


def test_steps_are_shorter_by_what_is_left_out() -> None:
    seen = Loop()
    seen.left_out_s(evaluates_within_an_epoch)
    assert max(seen.timer.step_ms) < TEST_S * 1e3 / 2
    assert min(seen.timer.step_ms) > 0
