"""What a rank waits for collectives, by kind and by the phase of its step, whoever calls them."""

from __future__ import annotations

import time
import weakref
from threading import Thread
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dmls_ray.training.observed.collectives import Collectives
from dmls_ray.training.observed.hooks import Faults
from dmls_ray.training.step_phases import Phase

pytestmark = pytest.mark.usefixtures("group")


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def collectives(faults: Faults) -> Collectives:
    return Collectives(faults, lambda: False)


def seconds_of(calls: Any) -> float:
    began = time.perf_counter()
    calls()
    return time.perf_counter() - began


def reduced() -> None:
    dist.all_reduce(torch.ones(1000))


def gathered() -> None:
    dist.all_gather([torch.empty(1000)], torch.ones(1000))


def scattered() -> None:
    dist.reduce_scatter(torch.empty(1000), [torch.ones(1000)])


def reduced_later() -> None:
    dist.all_reduce(torch.ones(1000), async_op=True).wait()


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (reduced, "all_reduce_ms"),
        (reduced_later, "all_reduce_ms"),
        (gathered, "all_gather_ms"),
        (scattered, "reduce_scatter_ms"),
        (dist.barrier, "other_collectives_ms"),
    ],
)
def test_a_collective_that_is_waited_for_has_its_kind_and_its_time(
    collectives: Collectives, faults: Faults, call: Any, kind: str
) -> None:
    with collectives.watched():
        for _ in range(2):
            collectives.step_began()
            seconds = seconds_of(call)
            collectives.step_ended([])
    (found,) = collectives.mean_ms().items()
    assert found[0] == kind
    assert 0 < found[1] < 1e4 * seconds + 1e3
    assert (collectives.unseen, faults.first) == (0, "")


def test_a_step_is_shorter_than_the_collectives_in_it_by_nothing(collectives: Collectives) -> None:
    with collectives.watched():
        collectives.step_began()
        seconds = seconds_of(lambda: [reduced() for _ in range(20)])
        collectives.step_ended([])
    (ms,) = collectives.mean_ms().values()
    assert 0 < ms <= seconds * 1e3


def test_the_time_of_a_collective_is_that_of_the_phase_it_is_in(collectives: Collectives) -> None:
    with collectives.watched():
        collectives.step_began()
        marks: list[tuple[Phase | None, float]] = [(None, time.perf_counter())]
        gathered()
        marks.append(("forward", time.perf_counter()))
        reduced()
        marks.append((None, time.perf_counter()))
        scattered()
        collectives.step_ended(marks)
    of_phases = collectives.mean_ms_of_phases()
    assert {*of_phases} == {"forward", "rest"}
    assert {*collectives.mean_ms()} == {"all_gather_ms", "reduce_scatter_ms"}, "what is in no step has no time"
    assert sum(of_phases.values()) == pytest.approx(sum(collectives.mean_ms().values()))


def test_what_is_not_waited_for_is_counted_as_unseen(collectives: Collectives) -> None:
    with collectives.watched():
        collectives.step_began()
        dist.all_reduce(torch.ones(10), async_op=True)
        collectives.step_ended([])
    assert (collectives.mean_ms(), collectives.unseen) == ({}, 1)


def test_a_group_that_is_made_during_the_training_is_watched_from_the_next_step_on(collectives: Collectives) -> None:
    with collectives.watched():
        collectives.step_began()
        collectives.step_ended([])
        own = dist.new_group([0])
        collectives.step_began()
        dist.all_reduce(torch.ones(10), group=own)
        collectives.step_ended([])
    assert ({*collectives.mean_ms()}, collectives.unseen) == ({"all_reduce_ms"}, 0)


def test_a_step_in_which_a_group_is_made_may_have_had_collectives_that_were_not_seen(collectives: Collectives) -> None:
    with collectives.watched():
        collectives.step_began()
        reduced()
        own = dist.new_group([0])
        dist.all_reduce(torch.ones(10), group=own)
        dist.destroy_process_group(own)
        collectives.step_ended([])
        assert (collectives.mean_ms(), collectives.unseen > 0) == ({}, True)
        collectives.step_began()
        assert len(collectives._groups) == 1, "a group that was destroyed is not kept"


def test_what_another_thread_communicates_is_hidden_and_makes_the_time_unknown(collectives: Collectives) -> None:
    with collectives.watched():
        collectives.step_began()
        thread = Thread(target=reduced)
        thread.start()
        thread.join()
        gathered()
        collectives.step_ended([])
    assert (collectives.mean_ms(), collectives.unseen) == ({}, 1)


def test_works_are_not_kept_nor_what_they_communicate(collectives: Collectives) -> None:
    with collectives.watched():
        collectives.step_began()
        tensor = torch.ones(10)
        dist.all_reduce(tensor, async_op=True).get_future().wait()
        kept = weakref.ref(tensor)
        del tensor
        # The thread of gloo lets go of it a moment after the work is done.
        until = time.monotonic() + 5
        while kept() is not None and time.monotonic() < until:
            time.sleep(0.01)
        assert kept() is None


def test_what_fails_in_looking_is_noted_and_does_not_end_the_program(faults: Faults) -> None:
    collectives = Collectives(faults, lambda: False)
    with collectives.watched():
        collectives.step_began()
        collectives._awaited = None  # type: ignore[assignment]
        reduced_later()
        dist.Work.wait(dist.all_reduce(torch.ones(1), async_op=True))
    assert "NoneType" in faults.first


def test_nothing_is_seen_once_the_training_is_over(collectives: Collectives) -> None:
    wait = dist.Work.wait
    with collectives.watched():
        collectives.step_began()
    reduced()
    assert dist.Work.wait is wait
    collectives.step_ended([])
    assert collectives.mean_ms() == {}


def test_under_ddp_the_reducer_waits_by_itself() -> None:
    collectives = Collectives(Faults(), lambda: True)
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    with collectives.watched():
        collectives.step_began()
        model(torch.ones(2, 4)).sum().backward()
        collectives.step_ended([])
    assert (collectives.mean_ms(), collectives.unseen) == ({}, 0)
