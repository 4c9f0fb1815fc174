"""The record of a run: its data model, validation and provenance.

Public for workloads: `metric.Metric`, `model.EpochRecord` and `run_events`. The rest is not public.
"""
