"""The workload that calls a user-defined training function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dmls_ray.config.runtime import Schema
from dmls_ray.records.metrics import TRAINING_METRICS
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.user_function.schema import UserFunctionConfig, function_name, user_function_schema


class UserFunctionWorkload(Workload):
    """One user-defined training function; each function is a workload.

    Args:
        train: `module:function`, or the function.
        names: the fields that can be varied, where the function takes a dict.
    """

    config = UserFunctionConfig
    entrypoint = "dmls_ray.workloads.user_function.rank_run:run_user_function"
    metrics = TRAINING_METRICS
    writes_traces = True

    def __init__(self, train: str | Callable[..., Any], names: Iterable[str] = ()) -> None:
        self.train = train
        self.names = tuple(names)
        self.name = train if isinstance(train, str) else function_name(train)[0]

    def schema(self) -> Schema:
        """The fields of the function's dataclass, or those named, and `RUNTIME_FIELDS`.

        Raises:
            ConfigError, UnknownNameError, UserCodeError: as `find_function`.
        """
        return user_function_schema(self.train, self.names)

    def modules(self, config: UserFunctionConfig) -> Sequence[str]:
        return (config.train.partition(":")[0],) if config.sent is None else config.sent.modules

    def functions(self, config: UserFunctionConfig) -> Mapping[str, str]:
        return {} if config.sent is None else {config.train: config.sent.digest}
