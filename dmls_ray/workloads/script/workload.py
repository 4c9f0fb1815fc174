"""The workload of training scripts: what can be varied of one, and the words of its command line."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from dmls_ray.config.fields import Count, FieldSpec, Name, field_defaults, field_specs, setting
from dmls_ray.config.identity import digest_of_changes
from dmls_ray.config.options import RESERVED
from dmls_ray.config.runtime import Conflict, RuntimeConfig, Schema, without_derived_fields
from dmls_ray.records.codec import check_field_values
from dmls_ray.records.metrics import TRAINING_METRICS
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.script.flags import ScriptFlag, reader_of
from dmls_ray.workloads.script.revisions import AS_IT_IS, commit_of, script_at

SEED_FLAGS = ("seed", "random_seed", "manual_seed", "manualSeed", "rng_seed", "global_seed")
"""Names of flags that seed a script."""


@dataclass(frozen=True, kw_only=True)
class ScriptOptions(RuntimeConfig):
    """How a script is run and measured: fields that all scripts have."""

    threads_per_rank: Count | None = setting(None, group="computation", unit="threads")  # type: ignore[assignment]
    """CPU threads a rank computes with; without it, the cores of its machine, divided among its ranks."""
    steps: Count | Literal["auto"] | None = setting("auto", group="run")
    """Optimizer steps after which the script is ended. auto: 50, or fewer, ten at least, where those that count take
    two seconds; none: it runs to its end."""
    seed_flag: str = setting("auto", group="run")
    """Flag of the script that is given the seed of each run; auto: by its name; none: no flag."""
    revision: Name | None = setting(None, group="run")
    """Revision of the script's git repository: a branch, a tag or a commit; . or none: the files as they are."""
    own_folder: bool = setting(False, group="run")
    """Whether each run has an empty working folder of its own."""

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
    """Path of the script."""
    arguments: str = ""
    """Its fixed arguments, as a line of a shell."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Flags, variables and names in braces, with their values."""
    patterns: Mapping[str, str] = field(default_factory=dict)
    """Name of a metric -> regular expression; the group of its last match in what the script prints is the number."""
    flags: Mapping[str, ScriptFlag] = field(default_factory=dict, compare=False, repr=False)
    """How each of the values is given to the script."""
    commit: str = field(default="", compare=False)
    """The commit that the revision names; empty for the files as they are."""

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
        return ScriptConfig(**{**without_derived_fields(vars(self), changes), **changes})

    @property
    def path(self) -> str:
        """The file that is run."""
        return str(script_at(self.script, self.commit))

    def words(self) -> list[str]:
        """The arguments of the script, with the seed of the run."""
        words = [re.sub(r"\{(\w+)\}", self._filled, word) for word in shlex.split(self.arguments)]
        for name, value in self.values.items():
            words += self.flags[name].words(value)
        if self.seed_flag not in ("", "none"):
            words += [self.seed_flag, str(self.seed)]
        return words

    def variables(self) -> dict[str, str]:
        """The variables of the environment that vary or are set."""
        return {name: str(value) for name, value in self.values.items() if self.flags[name].kind == "variable"}

    def _filled(self, braces: re.Match[str]) -> str:
        return str(self.values.get(braces[1], braces[0]))


class ScriptWorkload(Workload):
    """One script; without a name, that of records.

    Args:
        script: path of the script.
        arguments: its fixed arguments; `{name}` stands for the value of an axis.
        variables: names of variables of the environment that are given values.
        patterns: as those of `ScriptConfig`.
    """

    name = "script"
    config = ScriptConfig
    entrypoint = "dmls_ray.workloads.script.rank_run:run_script"
    metrics = TRAINING_METRICS
    throughput = ("samples_per_s", "tokens_per_s")
    probe: ClassVar[Mapping[str, Any]] = {"steps": 3}
    keeps_output = True
    presentation = "dmls_ray.workloads.script.presentation:ScriptPresentation"

    def __init__(
        self,
        script: str = "",
        arguments: Sequence[str] = (),
        variables: Sequence[str] = (),
        patterns: Mapping[str, str] | None = None,
    ) -> None:
        self.script, self.arguments, self.patterns = script, tuple(arguments), patterns or {}
        self._others = {name: ScriptFlag(name, "variable") for name in variables}
        for name in re.findall(r"\{(\w+)\}", " ".join(arguments)):
            self._others[name] = ScriptFlag(name, "template")

    @property
    def folder_name(self) -> str:
        return Path(self.script).stem

    def specs(self) -> Mapping[str, FieldSpec]:
        return field_specs(ScriptOptions)

    def schema(self) -> Schema:
        """The flags of the script, the variables and names in braces, and `ScriptOptions`.

        Raises:
            ConfigError: there is no script.
            UserCodeError: it fails before it reads its command line.
        """
        own = dict(field_specs(ScriptOptions))
        if not self.script:
            raise ConfigError("--workload script names no script; give its path: dmls-ray sweep train.py.")
        if not Path(self.script).is_file():
            raise ConfigError(f"{self.script}: there is no such file; give the path of a script.")
        reader = reader_of(self.script, self.arguments)
        flags = {**{_free(name, own): flag for name, flag in reader.flags.items()}, **self._others}
        named = {_free(name, own): spec for name, spec in reader.specs.items()}
        custom = {name: replace(spec, name=name) for name, spec in named.items()}
        custom |= {name: FieldSpec(name, hint=flag.hint) for name, flag in self._others.items()}
        return Schema(
            title=self.script,
            specs={"world_size": own.pop("world_size"), **custom, **own},
            build=functools.partial(self._build, flags, functools.cache(functools.partial(commit_of, self.script))),
            hash_of=lambda values: digest_of_changes(values, field_defaults(ScriptOptions)),
            fixed={"workload": self.name, "script": self.script},
            hint="A name in braces among the words after -- is a field, too: --flag={name}.",
        )

    def _build(
        self, flags: Mapping[str, ScriptFlag], commit_of_revision: Callable[[str], str], **given: Any
    ) -> ScriptConfig:
        values = {name: value for name, value in given.items() if name in flags}
        own = {name: value for name, value in given.items() if name not in flags}
        seed_flag = own.get("seed_flag", "auto")
        if seed_flag == "auto":
            found = [
                flag.option for name, flag in reader_of(self.script, self.arguments).flags.items() if name in SEED_FLAGS
            ]
            own["seed_flag"] = found[0] if found else "none"
        return ScriptConfig(
            script=self.script,
            arguments=shlex.join(self.arguments),
            values=values,
            flags=flags,
            patterns=self.patterns,
            commit=commit_of_revision(own.get("revision") or AS_IT_IS),
            **own,
        )

    def describe_sweep(self, axes: Mapping[str, Any]) -> Mapping[str, Any]:
        described: dict[str, Any] = {"script": self.script, "args": list(self.arguments)}
        described |= {"axes": {}, "set": {}, "env": {}, "metric_regex": dict(self.patterns)}
        tables = {"template": "set", "variable": "env"}
        for name, given in axes.items():
            flag = self._others.get(name)
            described[tables[flag.kind] if flag else "axes"][name] = given
        return described

    def split_off(self, names: Sequence[str]) -> tuple[Workload, Mapping[str, Any]]:
        reader = reader_of(self.script, self.arguments)
        own = field_specs(ScriptOptions)
        given: dict[str, Any] = {}
        taken: set[int] = set()
        for name, flag in reader.flags.items():
            field_name = _free(name, own)
            if field_name not in names or not flag.places or flag.kind == "bool" or flag.several:
                continue
            value = ["true"] if flag.kind == "switch" else flag.given
            if value:
                given[field_name] = reader.specs[name].parse(value[0])
                taken |= {*flag.places}
        left = [word for place, word in enumerate(self.arguments) if place not in taken]
        variables = [name for name, flag in self._others.items() if flag.kind == "variable"]
        return ScriptWorkload(self.script, left, variables, self.patterns), given

    def command_of(self, values: Mapping[str, Any]) -> str:
        config = self.schema().make(**{**values, "seed_flag": "none"})
        assert isinstance(config, ScriptConfig)
        variables = config.variables()
        if config.threads_per_rank is not None:
            variables |= {"OMP_NUM_THREADS": str(config.threads_per_rank)}
        program = ["python"]
        if config.world_size > 1:
            program = ["torchrun", "--standalone", "--nproc-per-node", str(config.world_size)]
        prefix = [f"{name}={value}" for name, value in variables.items()]
        return shlex.join([*prefix, *program, self.script, *config.words()])

    def check(self, configs: Sequence[ScriptConfig]) -> None:
        for config in configs:
            words, fixed = config.words(), tuple(shlex.split(config.arguments))
            for name in config.values:
                if config.flags[name].given is not None:
                    flag = config.flags[name].option
                    raise ConfigError(f"{flag} is given before -- and after it; leave one of them out.")
            if error := reader_of(config.path, fixed).error_of(words):
                flags = [word for word in fixed if word.startswith("--")]
                ours = [flag for flag in flags if flag[2:].replace("-", "_") in self._flags_of_sweeps()]
                way_out = f"; {ours[0]} is a flag of dmls-ray, which stands before --" if ours else ""
                at = f" at --revision {config.revision}" if config.commit else ""
                raise ConfigError(f"{config.script} {shlex.join(words)}{at}: {error}{way_out}.")

    def _flags_of_sweeps(self) -> set[str]:
        return {*RESERVED, *field_specs(ScriptOptions)}

    def check_recorded(self, config: Mapping[str, Any]) -> None:
        check_field_values(field_specs(ScriptOptions), config)

    def modules(self, config: ScriptConfig) -> Sequence[str]:
        return () if config.commit else (config.script,)

    def functions(self, config: ScriptConfig) -> Mapping[str, str]:
        # A commit stands for all files of its repository.
        return {f"revision {config.revision}": config.commit} if config.commit else {}

    def data_sets(self, config: ScriptConfig) -> Mapping[str, tuple[Any, ...]]:
        return {}  # what a script reads is not known


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """The name of a flag's field: that of the flag, or with a prefix where dmls_ray has a field of this name."""
    return f"script_{name}" if name in (*taken, *RESERVED, "script", "arguments") else name


WORKLOAD = ScriptWorkload
