"""The commands that train the best configuration of a search again: with other seeds, and for its weights."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.cli.flags import flag_of
from dmls_ray.cli.request import Request
from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.grid import SEED_STRIDE
from dmls_ray.config.options import FLAGS, SEARCH_ONLY
from dmls_ray.config.value_texts import as_flag_value, guess_value
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.uri import below, is_uri

CONFIRMING_REPEATS = 5

_NOT_KEPT = {*SEARCH_ONLY, "mode", "repeats", "order_seed", "out", "fresh", "stale", "save_weights", "trace"}
"""Options of a search that its best configuration is not trained with."""


@dataclass(frozen=True, kw_only=True)
class BestOfSearch:
    """The best configuration of a search, and the call that searched."""

    config: Mapping[str, Any]
    """The recorded configuration."""
    repeats: int
    """Seeds that the search has used."""
    request: Request
    """What the command line of the search asked."""
    program: str
    """The script."""
    where: str
    """The results folder, or its URI."""

    @property
    def confirm(self) -> str:
        """The command that trains with other seeds: the seed that won is one of the reasons why it did.

        Raises:
            ConfigError: a value has no text of a flag; the message says how to train it from Python.
        """
        seed = self.config["seed"] + self.repeats * SEED_STRIDE
        flags = ["--seed", str(seed), "--repeats", str(CONFIRMING_REPEATS), "--out", f"{self.where.rstrip('/')}-best"]
        return self._command(flags)

    @property
    def retrain(self) -> str:
        """The command that trains with the seed that won, and keeps the weights; a folder is needed for them.

        Raises:
            ConfigError: as `confirm`.
        """
        folder = self.where.rstrip("/")
        if is_uri(folder):
            folder = below("results", folder.rpartition("/")[2])
        seed = str(self.config["seed"])
        return self._command(["--seed", seed, "--repeats", "1", "--save-weights", "--out", f"{folder}-weights"])

    def _command(self, flags: Sequence[str]) -> str:
        request = self.request
        words = [self.program, *request.workload_words, "--mode", "bench"]
        if self.program.endswith(".py"):
            words.insert(0, "python")
        for name, spec in request.workload.schema().specs.items():
            # Of world_size, machines and ranks_per_machine two give the third.
            if name in ("seed", "ranks_per_machine") or name not in self.config:
                continue
            value = spec.check(self.config[name])  # a tuple is a list in a record
            if name in request.set_fields:
                words += ["--set", name, _text(spec, value)]
            elif repr(value) != repr(spec.default) or name in request.script_fields:
                words += [flag_of(name), _text(spec, value)]
        for name, spec in FLAGS.items():
            value = getattr(request.options, name)
            if name not in _NOT_KEPT and value != spec.default:
                words += [flag_of(name), _text(spec, value)]
        return shlex.join([*words, *flags])


def _text(spec: FieldSpec, value: Any) -> str:
    """The text that the flag reads as this very value: bare, in brackets as a list, or in quotation marks.

    Raises:
        ConfigError: there is none.
    """
    text = as_flag_value(value)
    for candidate in (text, f"[{text}]", f"'{text}'"):
        if candidate.startswith("-") and isinstance(guess_value(candidate), str):
            continue  # argparse takes it for a flag
        with contextlib.suppress(ConfigError):
            # By what they look like: 1 is not true.
            if repr(spec.parse(candidate)) == repr(value):
                return candidate
    raise ConfigError(
        f"The best configuration has {spec.name}={value!r}, which no text of a flag means; train it from Python: "
        f"sweep(..., {{{spec.name!r}: [{value!r}], ...}})."
    )
