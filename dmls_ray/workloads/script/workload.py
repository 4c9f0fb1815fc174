"""The workload of training scripts."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from dmls_ray.config.fields import FieldSpec, field_defaults, field_specs
from dmls_ray.config.identity import digest_of_changes
from dmls_ray.config.options import RESERVED
from dmls_ray.config.runtime import Schema
from dmls_ray.records.codec import check_field_values
from dmls_ray.records.metrics import TRAINING_METRICS
from dmls_ray.util.digests import file_of_program
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.programs import folder_name_of, module_of
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.script.braces import names_in_braces
from dmls_ray.workloads.script.config import THREADS, ScriptConfig, ScriptOptions
from dmls_ray.workloads.script.flags import NUMBER_OR_TEXT, FlagReader, ScriptFlag, reader_of
from dmls_ray.workloads.script.revisions import RepositoryCopy, copy_for


class ScriptWorkload(Workload):
    """One script; without a name, that of records.

    Args:
        script: path of the script, or `-m` and the name of a module.
        arguments: its fixed arguments; `{name}` stands for the value of an axis.
        variables: variables of the environment that vary or are set, each with one of its values.
        patterns: as those of `ScriptConfig`.
        shared: files and folders that runs of a revision read where they are.
        unset: further variables that can be set.
    """

    name = "script"
    config: ClassVar[type[ScriptConfig]] = ScriptConfig
    entrypoint = "dmls_ray.workloads.script.rank_run:run_script"
    metrics = TRAINING_METRICS
    throughput = ("samples_per_s", "tokens_per_s")
    probe: ClassVar[Mapping[str, Any]] = {"steps": 3}
    keeps_output = True
    presentation = "dmls_ray.analysis.workloads.script:ScriptPresentation"

    def __init__(
        self,
        script: str = "",
        arguments: Sequence[str] = (),
        variables: Mapping[str, Any] | None = None,
        patterns: Mapping[str, str] | None = None,
        shared: Sequence[str] = (),
        unset: Sequence[str] = (),
    ) -> None:
        self.script, self.arguments, self.patterns = script, tuple(arguments), patterns or {}
        self.shared, self.unset = tuple(shared), tuple(unset)
        self.variables = {name: str(value) for name, value in (variables or {}).items()}

    @property
    def folder_name(self) -> str:
        return folder_name_of(self.script)

    def specs(self) -> Mapping[str, FieldSpec]:
        return field_specs(ScriptOptions)

    def schema(self) -> Schema:
        """The flags of the script, the variables and names in braces, and `ScriptOptions`.

        Raises:
            ConfigError: there is no script, or a variable has the name of another field.
            UserCodeError: it fails before it reads its command line.
        """
        own = dict(self.specs())
        if not self.script:
            raise ConfigError(f"--workload {self.name}: give dmls-ray sweep train.py, or ab A B -- command PROGRAM.")
        reader = self._reader()
        flags = {_free(name, own): flag for name, flag in reader.flags.items()}
        custom = {_free(name, own): replace(spec, name=_free(name, own)) for name, spec in reader.specs.items()}
        aliases = {other: _free(name, own) for other, name in reader.aliases.items() if other not in (*own, *RESERVED)}
        for name, flag in self._others({**flags, **aliases}).items():
            if name in {**own, **flags}:
                raise ConfigError(
                    f"--env {name}: a setting or a flag of {self.script} has this name; set the variable before the "
                    f"command, {name}=... dmls-ray sweep."
                )
            # A variable has texts.
            hint = Any if flag.kind == "variable" else NUMBER_OR_TEXT
            flags[name], custom[name] = flag, FieldSpec(name, hint=hint)
        return Schema(
            title=self.script,
            specs={"world_size": own.pop("world_size"), **custom, **own},
            aliases=aliases,
            build=functools.partial(self._build, flags, aliases, functools.cache(self._copy_of)),
            hash_of=lambda values: digest_of_changes(values, field_defaults(ScriptOptions)),
            fixed={"workload": self.name, "script": self.script},
            hint="A name in braces among the words after -- is a field, too: --flag={name}.",
        )

    def _copy_of(self, revision: str) -> RepositoryCopy:
        return copy_for(str(file_of_program(self.script)), revision, shared=self.shared)

    def _others(self, taken: Mapping[str, Any]) -> dict[str, ScriptFlag]:
        """The variables, and the names in braces that are not those of flags or settings, which fill them, too."""
        found = {name: ScriptFlag(name, "variable") for name in (*self.variables, *self.unset)}
        for name in names_in_braces(self.arguments):
            if name not in {**found, **taken, **field_specs(ScriptOptions)}:
                found[name] = ScriptFlag(name, "template")
        return found

    def _reader(self) -> FlagReader:
        if file_of_program(self.script) is None:
            raise ConfigError(f"{self.script}: there is no such file; give the path of a script, or -m and a module.")
        return reader_of(self.script, self.arguments, variables=self.variables)

    def _build(
        self,
        flags: Mapping[str, ScriptFlag],
        aliases: Mapping[str, str],
        copy_of_revision: Callable[[str], RepositoryCopy],
        **given: Any,
    ) -> ScriptConfig:
        values = {name: value for name, value in given.items() if name in flags}
        own = {name: value for name, value in given.items() if name not in flags}
        if own.get("seed_flag", "auto") == "auto":
            own["seed_flag"] = self._reader().seed_flag or "none"
        revision = own.get("revision")
        if self.shared and not revision:
            raise ConfigError(f"--share {self.shared[0]} is for runs of a --revision; add one, or leave it out.")
        return self.config(
            script=self.script,
            arguments=shlex.join(self.arguments),
            values=values,
            flags=flags,
            aliases=aliases,
            patterns=self.patterns,
            copy=copy_of_revision(revision) if revision else None,
            variables_at_reading=self.variables,
            **own,
        )

    def name_objects(self, axes: Mapping[str, Any]) -> Mapping[str, Any]:
        aliases = self.schema().aliases
        return {aliases.get(name, name): given for name, given in axes.items()}

    def about_flags(self) -> str:
        return self._reader().about()

    def about_unknown_flag(self, flag: str, values: Sequence[str], meant: str) -> str:
        own = flag.lstrip("-").replace("-", "_")
        name = _free(own, field_specs(ScriptOptions)) if own.isidentifier() else "name"
        way_out = f"{shlex.join(['--set', name, *values, '--', *self.arguments])} {flag}={{{name}}}"
        return self._reader().about_unknown(flag, meant, way_out)

    def describe_sweep(self, axes: Mapping[str, Any]) -> Mapping[str, Any]:
        described: dict[str, Any] = {"script": self.script, "args": list(self.arguments)}
        described |= {"share": list(self.shared), "axes": {}, "set": {}, "env": {}, "metric_regex": dict(self.patterns)}
        tables = {"template": "set", "variable": "env"}
        own, reader = field_specs(ScriptOptions), self._reader()
        flags = self._others({_free(name, own): flag for name, flag in reader.flags.items()} | reader.aliases)
        for name, given in axes.items():
            table = tables.get(flags[name].kind, "axes") if name in flags else "axes"
            described[table][name] = given
        return described

    def split_off(self, names: Sequence[str]) -> tuple[Workload, Mapping[str, Any]]:
        reader = self._reader()
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
        return type(self)(self.script, left, self.variables, self.patterns, self.shared, self.unset), given

    def with_variables(self, names: Sequence[str]) -> Workload:
        unset = [name for name in names if name not in self.variables]
        return type(self)(self.script, self.arguments, self.variables, self.patterns, self.shared, unset)

    def command_of(self, values: Mapping[str, Any]) -> str:
        config = self.schema().make(**{**values, "seed_flag": "none"})
        assert isinstance(config, ScriptConfig)
        variables = config.variables()
        if config.threads_per_rank is not None:
            variables |= {THREADS: str(config.threads_per_rank)}
        program = ["python"]
        if config.world_size > 1:
            program = ["torchrun", "--standalone", "--nproc-per-node", str(config.world_size)]
        # Quotes around the name would make a program of it.
        prefix = "".join(f"{name}={shlex.quote(value)} " for name, value in variables.items())
        script = self.script.split() if module_of(self.script) else [self.script]
        return prefix + shlex.join([*program, *script, *config.words()])

    def check(self, configs: Sequence[ScriptConfig]) -> None:
        for config in configs:
            if config.copy is not None and not config.own_folder:
                config.copy.check_working_folder(str(config.revision))
            words = config.words()
            config.said()
            config.check_seed()
            for name in config.values:
                if config.flags[name].given is not None:
                    flag = config.flags[name].option
                    raise ConfigError(f"{flag} is given before -- and after it; leave one of them out.")
            if error := config.reader().error_of(words):
                flags = [word for word in shlex.split(config.arguments) if word.startswith("--")]
                own = {*RESERVED, *field_specs(ScriptOptions)}
                ours = [flag for flag in flags if flag[2:].replace("-", "_") in own]
                way_out = f"; {ours[0]} is a flag of dmls-ray, which stands before --" if ours else ""
                at = f" at --revision {config.revision}" if config.commit else ""
                raise ConfigError(f"{config.script} {shlex.join(words)}{at}: {error.rstrip('.')}{way_out}.")

    def prepare(self, configs: Sequence[ScriptConfig], notify: Callable[[str], None]) -> None:
        """Say that a number of threads that the user may have exported is not taken."""
        threads = os.environ.get(THREADS)
        if threads and any(config.threads_per_rank is None and THREADS not in config.variables() for config in configs):
            notify(
                f"{THREADS}={threads} of this shell has no effect on the runs: their ranks share the cores of the "
                f"machine. To set the threads of a rank, add --threads-per-rank {threads}."
            )

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
