"""Launcher `inline`: the only rank of a run is the process itself."""

from __future__ import annotations

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.launchers.base import Launcher, Rendezvous


class Inline(Launcher):
    """Starts one interpreter, which is the rank."""

    def rendezvous(self, config: RuntimeConfig) -> Rendezvous:
        return Rendezvous(0, None)


LAUNCHER = Inline()
