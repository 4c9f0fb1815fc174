"""`CountedStep`: the step of a warm-up whose operations are counted."""

from __future__ import annotations

from threading import get_ident

from dmls_ray.training.compat import compiled_graphs, current_dispatch_mode
from dmls_ray.training.flop_counter import FlopCounter

_COMPILED = (
    "the code compiles a model, whose kernels are not seen, and a step without compiling may need more memory; a run "
    "that compiles nothing, as by --env TORCHDYNAMO_DISABLE=1 of a script, has the operations of a step"
)

_NOT_LEFT = "a step ended within a backward pass or a TorchDispatchMode of the code, or in another thread than it began"


class CountedStep:
    """Counts the operations of the first step that begins after the first one, has no test in it, and is not timed."""

    def __init__(self) -> None:
        self.counter = FlopCounter()
        self.unknown = "the run has no step that could be counted: after the first one, and within the warm-up"
        """Why the operations of a step are not known; empty if they were counted."""
        self.number = 0
        """The number of the step, from 1; 0 before it was counted."""
        self._thread: int | None = None
        """The thread of the step under way, where it is counted."""
        self._tests = 0
        self._graphs = compiled_graphs()

    def begin(self, *, tests: int, has_compiled: bool) -> None:
        """A step of the warm-up begins.

        Args:
            tests: how many tests of the model were found so far.
            has_compiled: whether a model was to be compiled.
        """
        if self.number or self._thread is not None:
            return
        if has_compiled or compiled_graphs() != self._graphs:
            self.unknown = _COMPILED
            return
        if current_dispatch_mode() is not None:
            self.unknown = "the code has a TorchDispatchMode of its own"
            return
        self._thread, self._tests, self.counter = get_ident(), tests, FlopCounter()
        self.counter.__enter__()

    def end(self, number: int, *, tests: int) -> None:
        """A step, or the run, has ended.

        Args:
            number: how many steps have ended with it; 0 if it did not end.
            tests: as for `begin`.
        """
        if self._thread is None:
            return
        # Modes are left in the reverse order, each in its thread: one of the program must not be left in its place.
        if get_ident() != self._thread or current_dispatch_mode() is not self.counter:
            self.unknown = self.counter.unseen = _NOT_LEFT
            return
        self.counter.__exit__(None, None, None)
        self._thread = None
        if not number or tests != self._tests:
            return
        self.number, self.unknown = number, self.counter.unseen
        if compiled_graphs() != self._graphs:
            self.unknown = _COMPILED
