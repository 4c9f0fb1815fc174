"""The workload of commands: any program, without what is seen of a training script."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dmls_ray.config.fields import FieldSpec, field_specs
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.script.config import ScriptConfig, ScriptOptions
from dmls_ray.workloads.script.flags import FlagReader
from dmls_ray.workloads.script.paths import in_copy, word_in_copy
from dmls_ray.workloads.script.revisions import RepositoryCopy, copy_around
from dmls_ray.workloads.script.workload import ScriptWorkload

_FIELDS = ("world_size", "threads_per_rank", "device", "revision", "seed")
"""The fields of a script that a command has, too."""


@dataclass(frozen=True, kw_only=True)
class CommandConfig(ScriptConfig):
    """One configuration of a command.

    Raises:
        ConfigError, ConflictError: as `RuntimeConfig`.
    """

    @property
    def program(self) -> str:
        """The program, as it is typed."""
        return self.script

    def canonical(self) -> dict[str, Any]:
        left_out = field_specs(ScriptOptions).keys() - {*_FIELDS}
        return {name: value for name, value in super().canonical().items() if name not in left_out}


class _NoFlags(FlagReader):
    """The flags of a command, which are not known."""

    def __init__(self) -> None:
        self.flags, self.specs, self.aliases = {}, {}, {}


class CommandWorkload(ScriptWorkload):
    """One command, in copies of the repository that the working folder is in; arguments as those of `ScriptWorkload`,
    with the program in place of the script.
    """

    name = "command"
    config = CommandConfig
    entrypoint = "dmls_ray.workloads.command.rank_run:time_command"
    durations_compare = True
    about_flags = Workload.about_flags
    about_unknown_flag = Workload.about_unknown_flag

    def specs(self) -> Mapping[str, FieldSpec]:
        specs = {name: field_specs(ScriptOptions)[name] for name in _FIELDS}
        # Its copy says which files a run has.
        specs["revision"] = replace(specs["revision"], is_required=True)
        return specs

    def describe_sweep(self, axes: Mapping[str, Any]) -> Mapping[str, Any]:
        described = dict(super().describe_sweep(axes))
        del described["script"], described["args"]
        return {"command": [self.script, *self.arguments], **described}

    def check(self, configs: Sequence[ScriptConfig]) -> None:
        for config in configs:
            if config.world_size != 1:
                raise ConfigError(f"--world-size {config.world_size}: a command has one rank; leave it out.")
            config.words()

    def modules(self, config: ScriptConfig) -> Sequence[str]:
        return ()

    def functions(self, config: ScriptConfig) -> Mapping[str, str]:
        # All files count: which of them a command reads is not known.
        assert config.copy is not None
        return {**super().functions(config), f"files with revision {config.revision}": config.copy.digest}

    def _reader(self) -> FlagReader:
        return _NoFlags()

    def _copy_of(self, revision: str) -> RepositoryCopy:
        copy = copy_around(os.getcwd(), revision, self.shared)
        program = word_in_copy(self.script, copy.root, copy.tree)
        if os.path.dirname(program):
            program = os.path.join(in_copy(os.getcwd(), copy.root, copy.tree), program)
        if shutil.which(program) is None:
            raise ConfigError(
                f"--revision {revision}: {self.script} is no command there; give a program, or the path of an "
                "executable file, as ./bench.sh."
            )
        return copy

    def _build(self, *names: Any, **given: Any) -> ScriptConfig:
        return super()._build(*names, steps=None, seed_flag="none", **given)


WORKLOAD = CommandWorkload
