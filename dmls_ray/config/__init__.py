"""What to run and how: fields, configuration base classes, options, grids and search spaces. Performs no I/O.

Public for workloads: `runtime.RuntimeConfig`, `training.TrainingConfig` and `fields.setting`. The rest is not public,
except `dmls_ray.Range`.
"""
