from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from dmls_ray.util import interpreter
from dmls_ray.util.interpreter import stop_on_signals, uninterrupted


@pytest.fixture(autouse=True)
def stopping() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)  # nohup, and a shell's background, ignore some
    stop_on_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_that_arrives_twice_stops_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    monkeypatch.setattr(interpreter, "REPEAT_S", -1.0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_block_is_left_at_its_end(number: int) -> None:
    reached = []

    def block() -> None:
        with uninterrupted():
            signal.raise_signal(number)
            reached.append("end")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert reached == ["end"]


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop_on_signals()
    signal.raise_signal(signal.SIGHUP)
