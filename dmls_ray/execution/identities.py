"""`Identities`: the identity of each run of a sweep, from sources and data as they are when the sweep begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dmls_ray.config.grid import Run
from dmls_ray.records.identity import OF_FUNCTION, Identity
from dmls_ray.util.importing import try_import
from dmls_ray.util.source_digest import source_digests
from dmls_ray.workloads.base import Workload


class Identities:
    """Computes the digest of each module and the fingerprint of each data set once.

    Args:
        workload: the workload of all runs.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._by_trial: dict[str, Identity] = {}
        self._sources: dict[tuple[str, ...], Mapping[str, str]] = {}
        self._fingerprints: dict[tuple[Any, ...], str] = {}

    def of(self, run: Run) -> Identity:
        """The identity of a run; empty if its values conflict."""
        if run.config is None:
            return Identity()
        if run.trial_id not in self._by_trial:
            self._by_trial[run.trial_id] = self._identity(run.config)
        return self._by_trial[run.trial_id]

    def complete(self) -> None:
        """Ask again for the fingerprints that were unknown: data are prepared, or downloaded, by now."""
        if not all(self._fingerprints.values()):
            self._by_trial.clear()

    def together(self, runs: Iterable[Run]) -> Identity:
        """The code and the data of several runs."""
        identities = list({id(identity): identity for identity in map(self.of, runs)}.values())
        return Identity(
            modules=tuple(sorted({module for identity in identities for module in identity.modules})),
            code={name: digest for identity in identities for name, digest in identity.code.items()},
            data={name: digest for identity in identities for name, digest in identity.data.items()},
        )

    def _identity(self, config: Any) -> Identity:
        modules = tuple(sorted(set(self._workload.modules(config))))
        if modules not in self._sources:
            for module in modules:
                try_import(module)
            self._sources[modules] = source_digests(modules)
        functions = self._workload.functions(config)
        code = {
            **self._sources[modules],
            **{f"{name}{OF_FUNCTION}": digest for name, digest in functions.items()},
        }
        data_sets = self._workload.data_sets(config)
        for arguments in data_sets.values():
            if not self._fingerprints.get(arguments):
                self._fingerprints[arguments] = self._workload.fingerprint(*arguments)
        prints = {name: self._fingerprints[arguments] for name, arguments in data_sets.items()}
        data = {name: fingerprint for name, fingerprint in prints.items() if fingerprint}
        return Identity(modules=modules, code=code, data=data)
