"""`Identities`: the code and data of each configuration, as they are when the sweep begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_ray.config.identity import OF_FUNCTION, Identity
from dmls_ray.util.importing import try_import
from dmls_ray.util.source_digest import source_digests
from dmls_ray.workloads.base import Workload


class Identities:
    """Computes the digests of each set of modules and the fingerprint of each data set once.

    Args:
        workload: the workload of all configurations.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._sources: dict[tuple[str, ...], Mapping[str, str]] = {}
        self._fingerprints: dict[tuple[Any, ...], str] = {}

    def of(self, config: Any) -> Identity:
        """The identity of a configuration.

        Raises:
            DataError, UserCodeError: its data cannot be read.
        """
        modules = tuple(sorted(set(self._workload.modules(config))))
        if modules not in self._sources:
            for module in modules:
                try_import(module)
            self._sources[modules] = source_digests(modules)
        code = dict(self._sources[modules])
        for name, digest in self._workload.functions(config).items():
            code[f"{name}{OF_FUNCTION}"] = digest
        data = {}
        for name, arguments in self._workload.data_sets(config).items():
            if arguments not in self._fingerprints:
                self._fingerprints[arguments] = self._workload.fingerprint(*arguments)
            data[name] = self._fingerprints[arguments]
        return Identity(modules=modules, code=code, data=data)
