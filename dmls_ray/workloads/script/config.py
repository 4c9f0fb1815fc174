"""What can be varied of a training script, and the words of its command line.

One module because the fields of a configuration and the words that they become are read together.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from dmls_ray.config.fields import Count, FieldSpec, Name, field_specs, setting
from dmls_ray.config.runtime import Conflict, RuntimeConfig, without_derived_fields
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.programs import module_of
from dmls_ray.workloads.script.braces import filled
from dmls_ray.workloads.script.flags import FlagReader, ScriptFlag, reader_of
from dmls_ray.workloads.script.paths import word_in_copy
from dmls_ray.workloads.script.revisions import RepositoryCopy
from dmls_ray.workloads.script.said import counts_said

THREADS = "OMP_NUM_THREADS"
"""The variable by which libraries know how many threads to compute with."""
SEED = "DMLS_RAY_SEED"
"""The variable with the seed of the run, for a program without a flag for it."""


@dataclass(frozen=True, kw_only=True)
class ScriptOptions(RuntimeConfig):
    """How a script is run and measured: fields that all scripts have."""

    threads_per_rank: Count | None = setting(None, group="computation", unit="threads")  # type: ignore[assignment]
    """CPU threads a rank computes with; without it, the cores of its machine, divided among its ranks."""
    steps: Count | Literal["auto"] | None = setting("auto", group="run")
    """Optimizer steps after which the script is ended. auto: at most 50, and fewer (at least 10) if the counted steps
    take two seconds; none: it runs to its end."""
    seed_flag: str = setting("auto", group="run")
    """Flag of the script that is given the seed of each run; auto: recognized by its name; none: no flag."""
    revision: Name | None = setting(None, group="run")
    """Revision of the script's git repository that a run uses, in a copy: a branch, a tag or a commit, or . for the
    files as they are. none: no copy."""
    own_folder: bool = setting(False, group="run")
    """Whether each run has an empty working folder of its own."""
    samples: Name | None = setting(None, group="run")
    """Samples of a step over all ranks, if they are not recognized correctly, as arithmetic over flags and fields:
    'batch_size * world_size', or with tokens: 'batch_size * world_size, tokens=batch_size * 1024'."""
    evaluation: Literal["auto", "test", "training"] = setting("auto", group="run")
    """How to count time in evaluation mode, or while a loader is read without gradients. test: left out of the times of
    steps. training: part of the training, such as generating samples, playing games or labelling. auto: a test if a
    loader reads other data than the training; otherwise, above 5% of the time, times of steps are not known."""

    CONFLICTS: ClassVar[Sequence[Conflict]] = (
        Conflict(
            lambda config: config.launcher != "ray",
            "launcher={launcher} starts the ranks of built-in workloads and functions; a script needs launcher ray.",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class ScriptConfig(ScriptOptions):
    """One configuration of a script.

    Raises:
        ConfigError, ConflictError: as `RuntimeConfig`.
    """

    joins_group: ClassVar[bool] = False

    script: str
    """Path of the script; or -m and the name of a module, as after python."""
    arguments: str = ""
    """Its fixed arguments, as a line of a shell."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Flags, variables and names in braces, with their values."""
    patterns: Mapping[str, str] = field(default_factory=dict)
    """Name of a metric -> regular expression; the group of its last match in what the script prints is the number."""
    flags: Mapping[str, ScriptFlag] = field(default_factory=dict, compare=False, repr=False)
    """How each of the values is given to the script."""
    aliases: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Other names of flags."""
    copy: RepositoryCopy | None = field(default=None, compare=False)
    """The copy of the repository at the revision; None without one."""
    variables_at_reading: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Variables with which the flags of the script are read: it may read them first."""

    @classmethod
    def specs_to_check(cls) -> Mapping[str, FieldSpec]:
        return field_specs(ScriptOptions)

    def canonical(self) -> dict[str, Any]:
        own = {name: spec.plain(getattr(self, name)) for name, spec in field_specs(ScriptOptions).items()}
        world_size = own.pop("world_size")
        recorded = {
            "script": self.script,
            "arguments": self.arguments or None,
            "world_size": world_size,
            **self.values,
            **own,
        }
        return recorded | ({"metric_regex": dict(self.patterns)} if self.patterns else {})

    def replace(self, **changes: Any) -> ScriptConfig:
        return type(self)(**{**without_derived_fields(vars(self), changes), **changes})

    @property
    def commit(self) -> str:
        """The commit that the revision names; empty for the files as they are."""
        return self.copy.commit if self.copy is not None else ""

    @property
    def program(self) -> str:
        """What `run_as_main` takes."""
        return self.script if module_of(self.script) else os.path.abspath(self.script)

    def reader(self) -> FlagReader:
        """The reader of the script's flags, at the revision."""
        program, place = self.script, ("", "")
        if self.copy is not None and self.copy.commit:
            program = word_in_copy(self.program, self.copy.root, self.copy.tree)
            place = (str(self.copy.root), str(self.copy.tree))
        return reader_of(program, tuple(shlex.split(self.arguments)), place, self.variables_at_reading)

    def words(self) -> list[str]:
        """The arguments of the script, with the seed of the run.

        Raises:
            ConfigError: nothing fills a name in braces.
        """
        words = [filled(word, self.value_of) for word in shlex.split(self.arguments)]
        for name, value in self.values.items():
            words += self.flags[name].words(value)
        if self.seed_flag not in ("", "none"):
            words += [self.seed_flag, str(self.seed)]
        return words

    def check_seed(self) -> None:
        """Refuse a seed of the user's that the seed of each repeat would replace.

        Raises:
            ConfigError: the flag of the seed has values, or stands among the arguments.
        """
        given = "" if self.seed_flag == "none" else self._given_seed()
        # In braces it is the seed of the run.
        if given and "{seed}" not in given:
            raise ConfigError(
                f"{given}: each repeat gives {self.seed_flag} a seed of its own; add --seed-flag none to keep "
                "yours, or leave it out."
            )

    def _given_seed(self) -> str:
        """The flag of the seed with the value that the user gives it; empty without one."""
        name = self.seed_flag.lstrip("-").replace("-", "_")
        name = self.aliases.get(name, name)
        for field_name, flag in self.flags.items():
            if flag.option != self.seed_flag and field_name != name:
                continue
            if field_name in self.values:
                return f"--{field_name.replace('_', '-')} {self.values[field_name]}"
            if flag.given is not None:
                return f"{flag.option} {' '.join(flag.given)} after --"
        # Where the flags of the script are not known.
        words = shlex.split(self.arguments)
        for place, word in enumerate(words):
            if word == self.seed_flag:
                return f"{' '.join(words[place : place + 2])} after --"
            if word.startswith(f"{self.seed_flag}="):
                return f"{word} after --"
        return ""

    def variables(self) -> dict[str, str]:
        """The variables of the environment that vary or are set."""
        return {name: str(value) for name, value in self.values.items() if self.flags[name].kind == "variable"}

    def said(self) -> dict[str, float]:
        """Samples and tokens of a step of all ranks, as `samples` says them; empty where it says nothing.

        Raises:
            ConfigError: it names what there is not, or is no arithmetic.
        """
        if self.samples is None:
            return {}
        names = [*dict.fromkeys([*self.values, *self.flags, *field_specs(ScriptOptions)])]
        return counts_said(self.samples, self.value_of, names)

    def value_of(self, name: str) -> Any:
        """The value of a flag, a variable, a name in braces or a field, as it is in this run.

        Raises:
            KeyError: there is no such name.
        """
        name = self.aliases.get(name, name)
        if name in self.values:
            return self.values[name]
        if name in field_specs(ScriptOptions):
            return getattr(self, name)
        flag = self.flags[name]
        return flag.default if flag.given is None else " ".join(flag.given)
