from __future__ import annotations

import signal

import pytest

from dmls_ray.util.interrupts import arrivals


def test_an_interrupt_is_seen_in_its_block_alone() -> None:
    with arrivals() as arrived:
        before = arrived()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert (before, arrived(), arrived()) == (False, True, True)
    with arrivals() as arrived:
        assert not arrived()
    assert not arrived(), "asked after the block, as a thread may"
    assert signal.set_wakeup_fd(-1) == -1


def test_a_handled_signal_of_another_kind_is_no_interrupt() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with arrivals() as arrived:
            signal.raise_signal(signal.SIGUSR1)
            assert not arrived()
    finally:
        signal.signal(signal.SIGUSR1, before)
