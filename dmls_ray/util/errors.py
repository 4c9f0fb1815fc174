"""The errors that dmls_ray raises on purpose.

    DmlsRayError
    ├── InputError            the input cannot be run; the command line exits with 2
    │   ├── ConfigError       a field has a value that breaks a rule
    │   │   └── ConflictError fields that are valid alone conflict
    │   ├── UnknownNameError  a model, data set or `module:function` that cannot be found
    │   ├── UserCodeError     a user-defined module was found, and failed to import or to build
    │   ├── DataError         the data are missing, cannot be downloaded, or cannot be read
    │   ├── StoreError        the results folder cannot be used
    │   │   ├── StoreInUseError
    │   │   └── SchemaError
    │   └── ClusterError      Ray cannot be reached or does not have what the sweep needs
    ├── NotKeptError          a run has ended and cannot be written down; the command line exits with 1
    ├── WorkerGroupError      the ranks of a sweep cannot serve; the command line exits with 1
    ├── ClusterLostError      a process that the sweep needs died; call `sweep()` again, which continues
    ├── CodeDiffersError      a rank has other sources than the driver; the run ends with the outcome `error`
    ├── InfeasibleError       the run cannot be what was asked for; it ends with the outcome `skipped`
    │   └── UnavailableError  this machine lacks what the run needs
    └── DivergedError         a loss is not finite; the run ends with the outcome `diverged`

A message is one line: what is wrong, with the field and its value, and then the way out. Every class takes the message
as its only argument, so that an error survives pickling on its way from a rank to the driver.
"""

from __future__ import annotations


class DmlsRayError(Exception):
    """The base of all errors that dmls_ray raises on purpose."""


class InputError(DmlsRayError):
    """The input cannot be run."""


class ConfigError(InputError):
    """A field has a value that breaks a rule."""


class ConflictError(ConfigError):
    """Fields that are valid alone conflict; in a grid, such a point becomes a `skipped` row."""


class UnknownNameError(InputError):
    """A model, a data set or a `module:function` that cannot be found."""


class UserCodeError(InputError):
    """A user-defined module was found, and failed to import or to build."""


class DataError(InputError):
    """The data are missing, cannot be downloaded, or cannot be read."""


class StoreError(InputError):
    """The results folder cannot be used."""


class StoreInUseError(StoreError):
    """Another process writes to the results folder."""


class SchemaError(StoreError):
    """The results folder was written by a version with another layout of records."""


class ClusterError(InputError):
    """Ray cannot be reached or does not have what the sweep needs."""


class NotKeptError(DmlsRayError):
    """The record of a run that has ended cannot be written; those before it are kept."""


class WorkerGroupError(DmlsRayError):
    """The ranks of a sweep cannot serve, for a reason that another start does not remove. The runs that had ended are
    kept.
    """


class ClusterLostError(DmlsRayError):
    """Ray, or a process that the sweep needs, died.

    The runs that had ended are kept: call `sweep()` again with the same arguments, which runs the others. The command
    line starts the sweep again by itself, else exits with 75.
    """


class CodeDiffersError(DmlsRayError):
    """The user's sources on the machine of a rank are not those that the sweep began with."""


class InfeasibleError(DmlsRayError):
    """A run cannot be what its configuration asks for, so it is skipped."""


class UnavailableError(InfeasibleError):
    """This machine lacks what a run needs: a compiler, a library."""


class DivergedError(DmlsRayError):
    """A loss is not finite."""
