"""Libraries and modules that new processes of tests have loaded from the start."""

import gc

import sklearn.datasets  # noqa: F401
import torchvision  # noqa: F401

import tests.training.probes  # noqa: F401

# A rank collects garbage before its run, which would copy every page with an object in it.
gc.freeze()
