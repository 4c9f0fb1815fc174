"""Load what the processes of `new_processes` have loaded from the start."""

import gc
import importlib

for name in (
    "torch._dynamo",
    "torchvision",
    "dmls_ray.analysis.export.files",
    "tests.training.probes",
):
    importlib.import_module(name)

# A rank collects garbage before its run, which would copy every page with an object in it.
gc.freeze()
